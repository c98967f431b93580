/** Parses Kubernetes EndpointSlices (discovery.k8s.io/v1) and extracts workers. */
import type { Role } from '../../cluster/worker.ts'
import { isObject } from '../config/paths.ts'
import { workerName } from '../config/worker-id.ts'
import type { DiscoveredWorker } from './source.ts'

export interface Slice {
  /** Namespace and name. */
  readonly key: string
  readonly namespace: string
  readonly version: string
  readonly addressType: string
  readonly ports: readonly { readonly name: string; readonly port: number }[]
  readonly endpoints: readonly Endpoint[]
}

interface Endpoint {
  readonly address: string
  /** Name of its pod. */
  readonly pod?: string
  readonly ready: boolean
}

export interface SliceOptions {
  readonly role: Role
  readonly scheme: 'http' | 'https'
  /** Overrides the slice's port. */
  readonly port?: number
  /** Pod names are unique only within a namespace. */
  readonly manyNamespaces: boolean
}

export type ReadSlice =
  | { readonly kind: 'ok'; readonly slice: Slice }
  | { readonly kind: 'skipped'; readonly why: string }
const skipped = (why: string): ReadSlice => ({ kind: 'skipped', why })

export function readSlice(value: unknown): ReadSlice {
  if (!isObject(value)) return skipped('an item that is not an object: skipped')
  const metadata = objectAt(value, 'metadata')
  const [name, namespace, version] = [
    textAt(metadata, 'name'),
    textAt(metadata, 'namespace'),
    textAt(metadata, 'resourceVersion'),
  ]
  // Items of a list may omit their kind.
  const kind = textAt(value, 'kind') ?? 'EndpointSlice'
  if (kind !== 'EndpointSlice')
    return skipped(`${kind.slice(0, 100)} ${name?.slice(0, 253) ?? ''} is not an EndpointSlice: skipped`)
  if (name === undefined || version === undefined)
    return skipped('an EndpointSlice without a name or a version: skipped')
  const slice = {
    key: `${namespace ?? ''}/${name}`,
    namespace: namespace ?? '',
    version,
    addressType: textAt(value, 'addressType') ?? 'IPv4',
    ports: listAt(value, 'ports').flatMap(each => {
      const port = isObject(each) ? each['port'] : undefined
      if (typeof port !== 'number' || (textAt(each, 'protocol') ?? 'TCP') !== 'TCP') return []
      return [{ name: textAt(each, 'name') ?? '', port }]
    }),
    endpoints: listAt(value, 'endpoints').flatMap(each => endpointIn(each) ?? []),
  }
  return { kind: 'ok', slice }
}

/** Uses the first address, as the API specifies. A missing condition counts as good. */
function endpointIn(value: unknown): Endpoint | undefined {
  const [address] = listAt(value, 'addresses')
  if (typeof address !== 'string' || address === '') return undefined
  const { ready, serving, terminating } = objectAt(value, 'conditions')
  const target = objectAt(value, 'targetRef')
  const pod = textAt(target, 'kind') === 'Pod' ? textAt(target, 'name') : undefined
  // With publishNotReadyAddresses all endpoints are `ready`; `serving` is the real state.
  return {
    address,
    pod,
    ready: ready !== false && serving !== false && terminating !== true,
  }
}

/**
 * Returns each worker once: an endpoint may be in several slices while it moves, and in one per address
 * family.
 */
export function workersIn(
  slices: Iterable<Slice>,
  options: SliceOptions,
): { readonly found: DiscoveredWorker[]; readonly notes: string[] } {
  const found = new Map<string, { readonly one: DiscoveredWorker; readonly rank: number }>()
  const notes = new Set<string>()
  // Sorted, so that the result does not depend on the order of events: a pod may be in slices of several
  // services with different ports.
  for (const slice of [...slices].toSorted((a, b) => (a.key < b.key ? -1 : 1))) {
    const port = options.port ?? portOf(slice)
    if (port === undefined) {
      if (slice.endpoints.length > 0)
        notes.add(`${slice.key} has no TCP port: set discovery.kubernetes.port (--service-discovery-port)`)
      continue
    }
    for (const { address, pod, ready } of slice.endpoints) {
      const url = originOf(options.scheme, address, port, slice.addressType)
      if (url === undefined) {
        notes.add(`${slice.key} has an invalid address: skipped`)
        continue
      }
      const name = pod === undefined ? url.host : options.manyNamespaces ? `${slice.namespace}:${pod}` : pod
      const id = workerName(name)
      const rank = (ready ? 2 : 0) + (slice.addressType === 'IPv6' ? 0 : 1)
      const before = found.get(id)
      if (before === undefined || before.rank < rank)
        found.set(id, { one: { id, role: options.role, url: url.origin, ready }, rank })
    }
  }
  return { found: [...found.values()].map(({ one }) => one), notes: [...notes].toSorted() }
}

const portOf = ({ ports }: Slice): number | undefined =>
  (ports.find(({ name }) => name === 'http') ?? ports[0])?.port

interface Origin {
  readonly origin: string
  /** Always with the port, as in the ids of configured workers. */
  readonly host: string
}

function originOf(scheme: string, address: string, port: number, addressType: string): Origin | undefined {
  const host = addressType === 'IPv6' ? `[${address}]` : address
  if (!/^[\w.:[\]-]+$/.test(host) || !Number.isInteger(port) || port < 1 || port > 65_535) return undefined
  const text = `${scheme}://${host}:${port}`
  return URL.canParse(text)
    ? { origin: new URL(text).origin, host: `${new URL(text).hostname}:${port}` }
    : undefined
}

export function objectAt(value: unknown, key: string): Record<string, unknown> {
  const child = isObject(value) ? value[key] : undefined
  return isObject(child) ? child : {}
}

export function textAt(value: unknown, key: string): string | undefined {
  const child = isObject(value) ? value[key] : undefined
  return typeof child === 'string' && child !== '' ? child : undefined
}

export function listAt(value: unknown, key: string): readonly unknown[] {
  const child = isObject(value) ? value[key] : undefined
  return Array.isArray(child) ? child : []
}
