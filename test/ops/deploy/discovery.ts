/**
 * Discovery as manifests set it up: what Kubernetes makes of their services, and whether the gateway finds
 * all workers in that.
 */
import type { Settings } from '../../../src/gateway/config/settings.ts'
import type { FakeSlice } from '../../discovery/fake-kube.ts'
import { gatewayIn } from './gateway-config.ts'
import {
  type KubernetesObject,
  type Labels,
  ofKind,
  podLabels,
  portOf,
  type Rule,
  selects,
} from './objects.ts'
import { mayAskTheApi } from './roles.ts'

/** Ports of the API's service and of what is behind it. */
const API_PORTS: ReadonlySet<string | number> = new Set([443, 6443])

const podsOf = ({ metadata, spec }: KubernetesObject) =>
  Array.from({ length: spec.replicas! }, (_, at) => `${metadata.name}-${at}`)

/**
 * One for each service that selects StatefulSets, with the labels that its controller gives it. Each pod has
 * an address of its own.
 */
export function slicesIn(objects: readonly KubernetesObject[], namespace: string): FakeSlice[] {
  const sets = ofKind(objects, 'StatefulSet')
  const addresses = new Map(sets.flatMap(podsOf).map((pod, at) => [pod, `10.0.0.${at + 1}`]))
  return ofKind(objects, 'Service').flatMap(({ metadata, spec }) => {
    const chosen = sets.filter(set => selects({ matchLabels: spec.selector }, podLabels(set)))
    const { port, targetPort = port } = spec.ports.find(({ name }) => name === 'http') ?? spec.ports[0]!
    if (chosen.length === 0) return []
    return [
      {
        name: `${metadata.name}-x7k2p`,
        namespace,
        labels: {
          ...metadata.labels,
          'kubernetes.io/service-name': metadata.name,
          'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io',
          ...(spec.clusterIP === 'None' && { 'service.kubernetes.io/headless': '' }),
        },
        port: portOf(chosen[0]!.spec.template.spec, targetPort)!,
        endpoints: chosen.flatMap(podsOf).map(pod => ({ pod, address: addresses.get(pod)! })),
      },
    ]
  })
}

const labelsOf = (selector: readonly string[]): Labels =>
  Object.fromEntries(selector.map(label => label.split('=') as [string, string]))

/** What the policies of these pods let out; undefined where none of them says anything. */
function letOut(
  workload: KubernetesObject,
  objects: readonly KubernetesObject[],
): readonly Rule[] | undefined {
  const policies = ofKind(objects, 'NetworkPolicy').filter(({ spec }) =>
    selects(spec.podSelector, podLabels(workload)),
  )
  const telling = policies.filter(({ spec }) => spec.policyTypes!.includes('Egress'))
  return telling.length === 0 ? undefined : telling.flatMap(({ spec }) => spec.egress ?? [])
}

function networkProblems(objects: readonly KubernetesObject[], slices: readonly FakeSlice[]): string[] {
  const rules = letOut(gatewayIn(objects), objects)
  if (rules === undefined) return []
  const reachesApi = rules.some(
    ({ to, ports }) =>
      (to === undefined || to.every(({ ipBlock }) => ipBlock)) &&
      ports?.every(({ port }) => API_PORTS.has(port)) === true,
  )
  const reached = (set: KubernetesObject, port: number) =>
    rules.some(
      ({ to, ports }) =>
        to?.some(({ podSelector }) => podSelector && selects(podSelector, podLabels(set))) === true &&
        ports?.some(each => each.port === port) === true,
    )
  const portTo = (set: KubernetesObject) =>
    slices.find(({ endpoints }) => endpoints.some(({ pod }) => pod === podsOf(set)[0]))?.port
  return [
    ...(reachesApi ? [] : ['the gateway does not reach the API']),
    ...ofKind(objects, 'StatefulSet')
      .filter(set => !reached(set, portTo(set)!))
      .map(({ metadata }) => `the gateway does not reach ${metadata.name}`),
  ]
}

/** Workers that end go on for a while without new requests, and are not killed meanwhile. */
function drainProblems({ metadata: { name }, spec }: KubernetesObject): string[] {
  const { containers, terminationGracePeriodSeconds } = spec.template.spec
  const seconds = containers[0]!.lifecycle?.preStop.sleep.seconds ?? 0
  if (seconds === 0) return [`${name} ends its streams as soon as it is told`]
  return terminationGracePeriodSeconds > seconds + 30 ? [] : [`${name} is killed while it drains`]
}

/** Nothing for a gateway that is given its workers. */
export function problemsOfDiscovery(
  { discovery, workers }: Settings,
  objects: readonly KubernetesObject[],
  namespace: string,
): string[] {
  const { kubernetes } = discovery
  if (kubernetes?.enabled !== true) return []
  const slices = slicesIn(objects, namespace)
  const sets = ofKind(objects, 'StatefulSet')
  const found = (selector: readonly string[]) =>
    slices
      .filter(({ labels }) => selects({ matchLabels: labelsOf(selector) }, labels))
      .flatMap(({ endpoints }) => endpoints.map(({ pod }) => pod!))
  const wanted = (role: string) =>
    sets.filter(set => podLabels(set)['app.kubernetes.io/component'] === role).flatMap(podsOf)
  const asked = { prefill: found(kubernetes.prefillSelector), decode: found(kubernetes.decodeSelector) }
  return [
    ...(kubernetes.namespace === namespace ? [] : [`follows the namespace ${kubernetes.namespace}`]),
    ...(mayAskTheApi(gatewayIn(objects), objects) ? [] : ['may not ask the API']),
    ...(workers.prefill.length + workers.decode.length === 0
      ? []
      : ['is given workers that it finds as well, each then twice']),
    ...(['prefill', 'decode'] as const).flatMap(role =>
      JSON.stringify(asked[role]) === JSON.stringify(wanted(role))
        ? []
        : [
            `finds ${asked[role].join(', ') || 'no pod'} for ${role}, but there are ${wanted(role).join(', ')}`,
          ],
    ),
    ...networkProblems(objects, slices),
    ...sets.flatMap(drainProblems),
  ]
}
