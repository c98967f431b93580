/** What the owner tells the supervisor of itself, so that the next one begins as this one ended: what people changed while it ran. */
import type { Registry } from '../../../cluster/registry.ts'
import type { Role, WorkerSpec } from '../../../cluster/worker.ts'
import type { LogLevel, RoutingSettings, Settings } from '../../config/settings.ts'
import type { SourceMemory, SourceName } from '../../discovery/source.ts'
import type { LogLevelControl, LogLevelView } from '../../observe/log/log-level.ts'
import type { RoutingChange } from '../../routing/routing-control.ts'
import type { MetricsJson } from './merged-metrics.ts'

export interface SavedWorker {
  readonly spec: WorkerSpec
  readonly index: number
  readonly drained: boolean
  readonly healthy: boolean
}

export interface SavedArtifact {
  readonly path: string
  /** The name that people know it by. */
  readonly shownAs: string
}

/** As JSON has it. */
export interface SavedMemory {
  readonly dismissed: readonly (readonly [id: string, url: string])[]
  readonly places: readonly (readonly [id: string, index: number])[]
}

export interface SavedState {
  /** Those of the configuration and of the admin API; discovery finds its own again. */
  readonly workers?: readonly SavedWorker[]
  /** Discovered workers that an operator drained. */
  readonly held?: readonly string[]
  readonly discovery?: { readonly [source in SourceName]?: SavedMemory }
  /** Roles of which a worker was ready. */
  readonly ready?: readonly Role[]
  readonly routing?: Partial<Pick<RoutingSettings, 'policy' | 'tau' | 'prefillPolicy'>>
  readonly artifact?: SavedArtifact
  /** Of the artifact, after a re-fit too. */
  readonly clusters?: number
  /** `until`: of Date.now(), where it is for a while. */
  readonly logLevel?: { readonly level: LogLevel; readonly until?: number }
  /** Counted by processes that are gone, and by this owner. */
  readonly kept?: MetricsJson
  readonly own?: MetricsJson
  /** What relays said last, by number. */
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
  const found = [...held].filter(id => !workers.some(({ spec }) => spec.id === id))
  return {
    workers,
    held: found,
    ready: (['prefill', 'decode'] as const).filter(role => registry.hasCandidates(role, nowMs)),
  }
}

export function addSaved(registry: Registry, { workers = [], held = [] }: SavedState): void {
  const found = new Set(held)
  registry.subscribe(({ kind, worker: { id } }) => {
    // Not at once: others have not heard yet that it is there. It gets no request before it has been checked.
    if (kind === 'added' && found.delete(id)) queueMicrotask(() => registry.drain(id))
  })
  for (const { spec, index } of workers) registry.add(spec, index)
  for (const { spec, drained, healthy } of workers) {
    if (drained) registry.drain(spec.id)
    // It is checked at once all the same; until then what was true a moment ago holds.
    if (healthy) registry.setHealth(spec.id, true)
  }
}

export function levelOf({ level, leftMs }: LogLevelView): Required<Pick<SavedState, 'logLevel'>> {
  return { logLevel: { level, ...(leftMs !== undefined && { until: Date.now() + leftMs }) } }
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
  const fitted = artifact !== undefined && (cause === 'artifact' || cause === 'refit')
  return { routing: { policy, tau, prefillPolicy }, ...(fitted && { clusters: artifact.clusters }) }
}

/** What discovery remembers, beginning with what it remembered before. */
export class Memories {
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

/** The settings as they had been changed. */
export function settingsWith(settings: Settings, { routing, artifact }: SavedState): Settings {
  return {
    ...settings,
    routing: { ...settings.routing, ...routing, ...(artifact !== undefined && { artifact: artifact.path }) },
  }
}
