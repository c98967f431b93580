/** Keeps the registry's picture of the workers true: checks, restarts, connections of those that are gone. */
import { HealthLoop, NODE_TIMERS } from '../cluster/health.ts'
import { readSamples, sumByName } from '../cluster/metrics-text.ts'
import type { Registry } from '../cluster/registry.ts'
import { RESTART_SAMPLES, RestartWatch } from '../cluster/restart-watch.ts'
import type { WorkerSpec } from '../cluster/worker.ts'
import type { Settings } from './config/settings.ts'
import type { Log } from './log.ts'
import type { Metrics } from './metrics.ts'
import { type StopSignal, UpstreamFailure, type Upstreams } from './upstream/upstreams.ts'

export interface WorkerWatch {
  readonly health: HealthLoop
  readonly restarts: RestartWatch
  stop(): void
}

const MOST_METRICS_BYTES = 8 << 20

export function watchWorkers(settings: Settings, registry: Registry, upstreams: Upstreams, metrics: Metrics, log: Log): WorkerWatch {
  const specs = new Map<string, WorkerSpec>()
  const restarts = new RestartWatch(worker => {
    metrics.restarts.inc({ worker })
    log.warn({ worker }, 'a worker has been started anew')
  })
  const authorization = settings.workers.apiKey === undefined ? undefined : { authorization: `Bearer ${settings.workers.apiKey}` }
  const get = (url: string, path: string, maxBytes: number, stop?: StopSignal) =>
    upstreams.ask(
      url,
      { method: 'GET', path, headers: { ...authorization } },
      { timeoutMs: settings.health.timeoutMs, maxBytes },
      ...(stop ? [stop] : []),
    )

  async function probe(id: string, signal: AbortSignal): Promise<boolean> {
    const spec = specs.get(id)
    if (spec === undefined) return false
    const { status } = await get(spec.url, settings.health.path, 65_536, fromSignal(signal))
    if (status !== 200) return false
    if (spec.role === 'decode') void readCounters(spec)
    return true
  }

  async function counted(id: string, signal: AbortSignal): Promise<boolean> {
    const well = await probe(id, signal).catch(() => false)
    // A check that was called off says nothing of a worker, unless it was for its slowness; and of one that is gone nothing is counted.
    if (specs.has(id) && health.watches(id)) metrics.healthChecks.inc({ worker: id, result: well ? 'ok' : 'failed' })
    return well
  }

  /** Beside the check, not in it: a worker without metrics, or whose metrics hang, is well all the same. */
  async function readCounters({ id, url }: WorkerSpec): Promise<void> {
    const answer = await get(url, '/metrics', MOST_METRICS_BYTES).catch(() => undefined)
    if (answer?.status === 200 && specs.has(id))
      restarts.sawCounters(id, sumByName(readSamples(answer.body.toString('utf8'), RESTART_SAMPLES)))
  }

  const health = new HealthLoop({
    limits: settings.health,
    probe: counted,
    changed: (id, healthy) => {
      registry.setHealth(id, healthy)
      log[healthy ? 'info' : 'warn']({ worker: id }, healthy ? 'worker is ready' : 'worker does not answer its health check')
    },
    random: Math.random,
    timers: NODE_TIMERS,
  })
  const unsubscribe = registry.subscribe(({ kind, worker }) => {
    if (kind === 'added') {
      metrics.meetWorker(worker.id, worker.role)
      specs.set(worker.id, worker)
      health.watch(worker.id)
    } else if (kind === 'removed') health.unwatch(worker.id)
    else if (kind === 'forgotten') {
      specs.delete(worker.id)
      restarts.forget(worker.id)
      if (![...specs.values()].some(({ url }) => url === worker.url)) upstreams.forget(worker.url)
    } else if (kind.startsWith('breaker_')) {
      metrics.breakerChanges.inc({ worker: worker.id, to: kind.slice('breaker_'.length) })
      log.warn({ worker: worker.id, breaker: kind.slice('breaker_'.length) }, 'breaker')
    }
  })
  return {
    health,
    restarts,
    stop() {
      unsubscribe()
      health.stop()
    },
  }
}

function fromSignal(signal: AbortSignal): StopSignal {
  return {
    onStop(listener) {
      const tell = () => listener(new UpstreamFailure('aborted', 'the check was called off'))
      if (signal.aborted) queueMicrotask(tell)
      else signal.addEventListener('abort', tell, { once: true })
      return () => signal.removeEventListener('abort', tell)
    },
  }
}
