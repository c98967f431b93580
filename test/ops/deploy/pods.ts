/** Rules for every pod of every manifest. Returns what violates them. */
import { routeOf } from '../../../src/gateway/http/routes.ts'
import { type Container, type KubernetesObject, podLabels, portOf, selects, workloadsIn } from './objects.ts'
import { mayAskTheApi } from './roles.ts'

const HARDENED = { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true }

function containerProblems({ securityContext, resources }: Container): string[] {
  const context = securityContext as {
    readonly capabilities?: { readonly drop?: readonly string[] }
  } & Readonly<Record<string, unknown>>
  return [
    ...Object.entries(HARDENED)
      .filter(([key, value]) => context?.[key] !== value)
      .map(([key]) => `securityContext.${key}`),
    ...(context?.capabilities?.drop?.includes('ALL') ? [] : ['capabilities.drop']),
    ...(resources?.requests?.['cpu'] && resources.requests['memory'] && resources.limits['memory']
      ? []
      : ['resources']),
  ]
}

function probeProblems(container: Container, { spec }: KubernetesObject['spec']['template']): string[] {
  const probes = {
    startup: container.startupProbe,
    liveness: container.livenessProbe,
    readiness: container.readinessProbe,
  }
  return Object.entries(probes).flatMap(([name, probe]) => {
    if (probe === undefined) return [`${name} probe is missing`]
    const { path, port } = probe.httpGet
    return [
      ...(portOf(spec, port) === undefined ? [`${name} probe asks port ${port}, which is not there`] : []),
      // The gateway's own routes, from its own table. vLLM's /health is one of the same name.
      ...(routeOf('GET', path).kind === 'own' ? [] : [`${name} probe asks ${path}, which is no route`]),
    ]
  })
}

/** One that may do nothing is still one that can be stolen. */
function tokenProblems(has: boolean, mayAsk: boolean): string[] {
  if (has === mayAsk) return []
  return has ? ['has a token for the API'] : ['may ask the API, and has no token']
}

function podProblems(workload: KubernetesObject, objects: readonly KubernetesObject[]): string[] {
  const { template, selector, volumeClaimTemplates = [] } = workload.spec
  const { spec } = template
  const context = spec.securityContext as {
    readonly runAsNonRoot?: boolean
    readonly runAsUser?: number
    readonly seccompProfile?: { type: string }
  }
  const volumes = [
    ...spec.volumes.map(({ name }) => name),
    ...volumeClaimTemplates.map(({ metadata }) => metadata.name),
  ]
  const containers = [...spec.containers, ...(spec.initContainers ?? [])]
  const mounts = containers.flatMap(({ volumeMounts }) => volumeMounts)
  return [
    ...(selects(selector, podLabels(workload)) ? [] : ['selector does not match its own pods']),
    ...(context?.runAsNonRoot === true && (context.runAsUser ?? 0) > 0 ? [] : ['may run as root']),
    ...(context?.seccompProfile?.type === 'RuntimeDefault' ? [] : ['no seccomp profile']),
    ...tokenProblems(spec.automountServiceAccountToken, mayAskTheApi(workload, objects)),
    ...(spec.enableServiceLinks === false
      ? []
      : ['has links to services in its environment, ELDR_PORT among them']),
    ...mounts
      .filter(({ name }) => !volumes.includes(name))
      .map(({ name }) => `mounts ${name}, which is no volume`),
    ...volumes
      .filter(name => !mounts.some(mount => mount.name === name))
      .map(name => `volume ${name} is mounted nowhere`),
    ...containers.flatMap(container =>
      [
        ...containerProblems(container),
        ...probeProblems(container, template),
        ...(container.args?.[0] === 'serve' && container.name === 'gateway' ? adaptProblems(container) : []),
      ].map(what => `${container.name}: ${what}`),
    ),
  ]
}

/** A gateway may write only to volumes: swaps of live recalibration go to one. */
function adaptProblems({ env = [], volumeMounts }: Container): string[] {
  const folder = env.find(({ name }) => name === 'ELDR_ADAPT_FOLDER')?.value
  if (folder === undefined) return ['ELDR_ADAPT_FOLDER is not set']
  const mount = volumeMounts.find(({ mountPath }) => folder.startsWith(`${mountPath}/`))
  return mount === undefined || mount.readOnly === true ? [`ELDR_ADAPT_FOLDER ${folder} is not writable`] : []
}

export function problemsOfPods(objects: readonly KubernetesObject[]): string[] {
  return workloadsIn(objects).flatMap(workload =>
    podProblems(workload, objects).map(what => `${workload.metadata.name}: ${what}`),
  )
}
