/**
 * State that the owner saves with the supervisor, so that the next owner continues with what operators
 * changed.
 */
import type { Registry } from '../../../cluster/registry.ts'
import type { Role, WorkerSpec } from '../../../cluster/worker.ts'
import type { LogLevel, RoutingSettings, Settings } from '../../config/settings.ts'
import type { SourceMemory, SourceName } from '../../discovery/source.ts'
import type { LogLevelControl, LogLevelView } from '../../observe/log/log-level.ts'
import type { RoutingChange } from '../../routing/routing-control.ts'
import type { MetricsJson } from './merged-metrics.ts'

export interface SavedWorker {
  readonly spec: WorkerSpec
  /** Undefined: its place in the list. */
  readonly index?: number
  readonly drained: boolean
  readonly healthy: boolean
}

export interface SavedArtifact {
  readonly path: string
  /** Name for people. */
  readonly shownAs: string
}

/** SourceMemory as JSON. */
export interface SavedMemory {
  readonly dismissed: readonly (readonly [id: string, url: string])[]
  readonly places: readonly (readonly [id: string, index: number])[]
}

export interface SavedState {
  /** Workers of the configuration and the admin API; discovery finds its own again. */
  readonly workers?: readonly SavedWorker[]
  /** Discovered workers that an operator drained. */
  readonly held?: readonly string[]
  readonly discovery?: { readonly [source in SourceName]?: SavedMemory }
  /** Roles that had a ready worker. */
  readonly ready?: readonly Role[]
  readonly routing?: Partial<Pick<RoutingSettings, 'policy' | 'tau' | 'prefillPolicy'>>
  readonly artifact?: SavedArtifact
  /** Number of clusters in force, which a refit may have changed. */
  readonly clusters?: number
  /** Changes that the replicas' store does not have yet. */
  readonly pending?: Readonly<Record<string, string>>
  /** `until`: Date.now() at which a temporary level ends. */
  readonly logLevel?: { readonly level: LogLevel; readonly until?: number }
  /** Metrics of processes that have exited. */
  readonly kept?: MetricsJson
  /** Metrics of this owner. */
  readonly own?: MetricsJson
  /** Last reports of the relays, by number. */
  readonly seen?: Readonly<Record<string, MetricsJson>>
}

export function savedWorkers(
  registry: Pick<Registry, 'views' | 'hasCandidates' | 'heldBy'>,
): Pick<SavedState, 'workers' | 'held' | 'ready'> {
  const nowMs = performance.now()
  const held = new Set(registry.heldBy('admin'))
  const workers = registry
    .views(nowMs)
    .filter(({ leaving, spec: { source } }) => !leaving && (source === 'config' || source === 'admin'))
    .map(({ spec, index, state }) => ({
      spec,
      index,
      drained: held.has(spec.id),
      healthy: state === 'ready' || state === 'open',
    }))
  const discovered = [...held].filter(id => !workers.some(({ spec }) => spec.id === id))
  return {
    workers,
    held: discovered,
    ready: (['prefill', 'decode'] as const).filter(role => registry.hasCandidates(role, nowMs)),
  }
}

export function addSaved(registry: Registry, { workers = [], held = [] }: SavedState): void {
  const toDrain = new Set(held)
  registry.subscribe(({ kind, worker: { id } }) => {
    // Deferred until all listeners have seen that it was added. It gets no request before its first health
    // check.
    if (kind === 'added' && toDrain.delete(id)) queueMicrotask(() => registry.drain(id))
  })
  if (workers.some(({ index }) => index === undefined)) registry.addAll(workers.map(({ spec }) => spec))
  else for (const { spec, index } of workers) registry.add(spec, index)
  for (const { spec, drained, healthy } of workers) {
    if (drained) registry.drain(spec.id)
    // The last known health, until the first check.
    if (healthy) registry.setHealth(spec.id, true)
  }
}

export function levelOf({ level, leftMs }: LogLevelView): Required<Pick<SavedState, 'logLevel'>> {
  return { logLevel: { level, until: leftMs === undefined ? undefined : Date.now() + leftMs } }
}

export function restoreLevel(
  control: LogLevelControl,
  { level, until }: NonNullable<SavedState['logLevel']>,
): void {
  if (until === undefined) control.set(level)
  else if (until > Date.now()) control.set(level, until - Date.now())
}

export function routingOf({ cause, routing }: RoutingChange): Pick<SavedState, 'routing' | 'clusters'> {
  const { policy, tau, prefillPolicy, artifact } = routing
  const refitted = cause === 'artifact' || cause === 'refit'
  // Sent as JSON, which drops an undefined value: the supervisor then keeps the last one.
  return { routing: { policy, tau, prefillPolicy }, clusters: refitted ? artifact?.clusters : undefined }
}

/** What discovery remembers, initialised from the saved state. */
export class DiscoveryMemory {
  readonly #memories = new Map<SourceName, SourceMemory>()
  readonly #saved: NonNullable<SavedState['discovery']>

  constructor(saved: SavedState['discovery'] = {}) {
    this.#saved = saved
  }

  of(source: SourceName): SourceMemory {
    const { dismissed = [], places = [] } = this.#saved[source] ?? {}
    const memory = { dismissed: new Map(dismissed), places: new Map(places) }
    this.#memories.set(source, memory)
    return memory
  }

  get saved(): Required<Pick<SavedState, 'discovery'>> {
    const each = ([source, { dismissed, places }]: [SourceName, SourceMemory]) =>
      [source, { dismissed: [...dismissed], places: [...places] }] as const
    return { discovery: Object.fromEntries([...this.#memories].map(each)) }
  }
}

/** The settings with the saved changes. */
export function settingsWith(settings: Settings, { routing = {}, artifact }: SavedState): Settings {
  const given = settings.routing
  return {
    ...settings,
    routing: {
      ...given,
      policy: routing.policy ?? given.policy,
      tau: routing.tau ?? given.tau,
      prefillPolicy: routing.prefillPolicy ?? given.prefillPolicy,
      artifact: artifact?.path ?? given.artifact,
    },
  }
}
