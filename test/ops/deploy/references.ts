/**
 * Whether objects that name each other, by name, label or port, mean something that is there: lists of what
 * is not.
 */
import { type KubernetesObject, ofKind, podLabels, portOf, selects, workloadsIn } from './objects.ts'

/** Pods that are not among the objects: workers that a user brings have this label. */
const ROLE = 'eldr.dev/role'

function serviceProblems(service: KubernetesObject, workloads: readonly KubernetesObject[]): string[] {
  const { selector, ports } = service.spec
  const chosen = workloads.filter(workload => selects({ matchLabels: selector }, podLabels(workload)))
  if (chosen.length === 0) return ROLE in selector ? [] : ['selects no pod']
  return [
    ...(chosen.length > 1
      ? [`selects pods of ${chosen.map(({ metadata }) => metadata.name).join(' and ')}`]
      : []),
    ...chosen.flatMap(workload =>
      ports
        .filter(
          ({ port, targetPort = port }) => portOf(workload.spec.template.spec, targetPort) === undefined,
        )
        .map(({ name }) => `port ${name} leads to none of ${workload.metadata.name}`),
    ),
  ]
}

function policyProblems(policy: KubernetesObject, workloads: readonly KubernetesObject[]): string[] {
  const { podSelector, ingress = [], egress = [] } = policy.spec
  const chosen = workloads.filter(workload => selects(podSelector, podLabels(workload)))
  const known = (ports: readonly { port: string | number }[], to: readonly KubernetesObject[]) =>
    ports.filter(({ port }) => !to.some(workload => portOf(workload.spec.template.spec, port) !== undefined))
  return [
    ...(chosen.length === 0 && !JSON.stringify(podSelector).includes(ROLE) ? ['selects no pod'] : []),
    ...(chosen.length === 0
      ? []
      : ingress.flatMap(({ ports = [] }) =>
          known(ports, chosen).map(({ port }) => `lets port ${port} in, which is not there`),
        )),
    ...egress.flatMap(({ to = [], ports = [] }) => {
      const reached = workloads.filter(workload =>
        to.some(({ podSelector: peer }) => peer && selects(peer, podLabels(workload))),
      )
      return reached.length === 0
        ? []
        : known(ports, reached).map(({ port }) => `lets out to port ${port}, which is not there`)
    }),
  ]
}

function nameProblems(workload: KubernetesObject, objects: readonly KubernetesObject[]): string[] {
  const has = (kind: string, name: string | undefined) =>
    ofKind(objects, kind).some(({ metadata }) => metadata.name === name)
  const { spec, kind } = workload
  const pod = spec.template.spec
  const headless = ofKind(objects, 'Service').find(({ metadata }) => metadata.name === spec.serviceName)
  return [
    ...(kind === 'StatefulSet' && headless?.spec.clusterIP !== 'None'
      ? [`${spec.serviceName} is no headless service`]
      : []),
    ...pod.volumes
      .filter(({ configMap }) => configMap && !has('ConfigMap', configMap.name))
      .map(({ configMap }) => `no ConfigMap ${configMap!.name}`),
    ...(pod.serviceAccountName === undefined || has('ServiceAccount', pod.serviceAccountName)
      ? []
      : ['no such service account']),
  ]
}

function monitorProblems(
  monitor: KubernetesObject,
  services: readonly KubernetesObject[],
  jobs: ReadonlySet<string>,
): string[] {
  const chosen = services.filter(({ metadata }) => selects(monitor.spec.selector, metadata.labels ?? {}))
  if (chosen.length !== 1) return [`selects ${chosen.length} services`]
  const names = new Set(chosen[0]!.spec.ports.map(({ name }) => name))
  const job = jobOf(monitor, chosen[0]!)
  return [
    ...monitor.spec.endpoints
      .filter(({ port }) => !names.has(port))
      .map(({ port }) => `scrapes port ${port}, which is not there`),
    ...[...jobs]
      .filter(asked => asked !== job)
      .map(asked => `its job is ${job}, but alerts ask for ${asked}`),
  ]
}

/** As the Prometheus operator has it: the value of that label of the service, else the service's name. */
function jobOf({ spec: { jobLabel = '' } }: KubernetesObject, { metadata }: KubernetesObject): string {
  return metadata.labels?.[jobLabel] ?? metadata.name
}

/** That alerts ask for by name. */
function jobsAskedFor(objects: readonly KubernetesObject[]): Set<string> {
  const rules = ofKind(objects, 'PrometheusRule').flatMap(({ spec }) =>
    spec.groups!.flatMap(group => group.rules),
  )
  return new Set(rules.flatMap(({ expr }) => [...expr.matchAll(/\bjob="([^"]*)"/g)].map(([, job]) => job!)))
}

export function problemsOfReferences(objects: readonly KubernetesObject[]): string[] {
  const workloads = workloadsIn(objects)
  const services = ofKind(objects, 'Service')
  const told = (found: readonly KubernetesObject[], look: (object: KubernetesObject) => string[]) =>
    found.flatMap(object => look(object).map(what => `${object.kind} ${object.metadata.name}: ${what}`))
  return [
    ...told(services, service => serviceProblems(service, workloads)),
    ...told(ofKind(objects, 'NetworkPolicy'), policy => policyProblems(policy, workloads)),
    ...told(workloads, workload => nameProblems(workload, objects)),
    ...told(ofKind(objects, 'ServiceMonitor'), monitor =>
      monitorProblems(monitor, services, jobsAskedFor(objects)),
    ),
    ...told(ofKind(objects, 'PodDisruptionBudget'), ({ spec }) =>
      workloads.some(workload => selects(spec.selector, podLabels(workload))) ? [] : ['selects no pod'],
    ),
    ...told(ofKind(objects, 'HorizontalPodAutoscaler'), ({ spec: { scaleTargetRef } }) => {
      const target = workloads.find(
        ({ kind, metadata }) => kind === scaleTargetRef.kind && metadata.name === scaleTargetRef.name,
      )
      if (target === undefined) return ['scales nothing']
      return target.spec.replicas === undefined
        ? []
        : ['its target says how many there are, and every upgrade would undo the scaling']
    }),
  ]
}
