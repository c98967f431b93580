/** What the owner tells the supervisor of itself, so that the next one begins as this one ended: what people changed while it ran. */
import type { Registry } from '../../cluster/registry.ts'
import type { Role, WorkerSpec } from '../../cluster/worker.ts'
import type { LogLevel, RoutingSettings, Settings } from '../config/settings.ts'
import type { LogLevelControl, LogLevelView } from '../log-level.ts'
import type { RoutingView } from '../routing/routing-control.ts'
import type { MetricsJson } from './merged-metrics.ts'

export interface SavedWorker {
  readonly spec: WorkerSpec
  readonly index: number
  readonly drained: boolean
  readonly healthy: boolean
}

export interface SavedState {
  /** Those of the configuration and of the admin API; discovery finds its own again. */
  readonly workers?: readonly SavedWorker[]
  /** Roles of which a worker was ready. */
  readonly ready?: readonly Role[]
  readonly routing?: Partial<Pick<RoutingSettings, 'policy' | 'tau' | 'prefillPolicy'>>
  readonly artifact?: string
  /** `until`: of Date.now(), where it is for a while. */
  readonly logLevel?: { readonly level: LogLevel; readonly until?: number }
  /** Counted by processes that are gone, and by this owner. */
  readonly kept?: MetricsJson
  readonly own?: MetricsJson
}

export function workersOf(registry: Pick<Registry, 'views' | 'hasCandidates'>): Pick<SavedState, 'workers' | 'ready'> {
  const nowMs = performance.now()
  const workers = registry
    .views(nowMs)
    .filter(({ leaving, spec: { source } }) => !leaving && (source === 'config' || source === 'admin'))
    .map(({ spec, index, state }) => ({ spec, index, drained: state === 'draining', healthy: state === 'ready' || state === 'open' }))
  return { workers, ready: (['prefill', 'decode'] as const).filter(role => registry.hasCandidates(role, nowMs)) }
}

export function addSaved(registry: Registry, workers: readonly SavedWorker[]): void {
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

export function restoreLevel(control: LogLevelControl, { level, until }: NonNullable<SavedState['logLevel']>): void {
  if (until === undefined) control.set(level)
  else if (until > Date.now()) control.set(level, until - Date.now())
}

export function routingOf({ policy, tau, prefillPolicy }: RoutingView): Required<Pick<SavedState, 'routing'>> {
  return { routing: { policy, tau, prefillPolicy } }
}

/** The settings as they had been changed. */
export function settingsWith(settings: Settings, { routing, artifact }: SavedState): Settings {
  return { ...settings, routing: { ...settings.routing, ...routing, ...(artifact !== undefined && { artifact }) } }
}
