/**
 * Keeps the registry up to date: health checks, detection of restarts, closing the connections of removed
 * workers.
 */
import { HealthLoop, NODE_TIMERS } from '../../cluster/health.ts'
import { ofEngine, readSamples, sumByName } from '../../cluster/metrics-text.ts'
import type { Registry } from '../../cluster/registry.ts'
import { RESTART_SAMPLES, RestartWatch } from '../../cluster/restart-watch.ts'
import type { WorkerSpec } from '../../cluster/worker.ts'
import type { Settings } from '../config/settings.ts'
import type { Log } from '../observe/log/log.ts'
import type { Metrics } from '../observe/metrics/metrics.ts'
import { type StopSignal, UpstreamFailure, type Upstreams } from '../upstream/upstreams.ts'

export interface WorkerWatch {
  readonly health: Pick<HealthLoop, 'passiveFailure'>
  readonly restarts: RestartWatch
  /** Told of workers that restarted. */
  onRestart(listener: (worker: string) => void): void
  stop(): void
}

const MAX_METRICS_BYTES = 8 << 20

export function watchWorkers(
  settings: Settings,
  registry: Registry,
  upstreams: Upstreams,
  metrics: Metrics,
  log: Log,
): WorkerWatch {
  /** Includes workers that are leaving, whose requests still run. */
  const specs = new Map<string, WorkerSpec>()
  /**
   * By URL, which is what is checked: all ranks of a server have the same health. Without workers that are
   * leaving.
   */
  const servers = new Map<string, { readonly workers: Map<string, WorkerSpec>; healthy?: boolean }>()
  const workersAt = (url: string) => [...(servers.get(url)?.workers.values() ?? [])]
  const restartListeners: ((worker: string) => void)[] = []
  const restarts = new RestartWatch(worker => {
    metrics.restarts.inc({ worker })
    log.warn({ worker }, 'worker restarted')
    for (const listener of restartListeners) listener(worker)
  })
  const authorization =
    settings.workers.apiKey === undefined ? undefined : { authorization: `Bearer ${settings.workers.apiKey}` }
  const get = (url: string, path: string, maxBytes: number, stop?: StopSignal) =>
    upstreams.ask(
      url,
      { method: 'GET', path, headers: { ...authorization } },
      { timeoutMs: settings.health.timeoutMs, maxBytes },
      ...(stop ? [stop] : []),
    )

  async function probe(url: string, signal: AbortSignal): Promise<boolean> {
    const { status } = await get(url, settings.health.path, 65_536, fromSignal(signal))
    if (status !== 200) return false
    if (workersAt(url).some(({ role }) => role === 'decode')) void readCounters(url)
    return true
  }

  async function countedProbe(url: string, signal: AbortSignal): Promise<boolean> {
    const server = servers.get(url)
    const healthy = await probe(url, signal).catch(() => false)
    // Not counted if the check was cancelled because the worker is gone.
    if (server === servers.get(url) && health.watches(url))
      for (const { id } of workersAt(url))
        metrics.healthChecks.inc({ worker: id, result: healthy ? 'ok' : 'failed' })
    return healthy
  }

  /** Not part of the check: a worker without metrics, or with metrics that hang, is healthy all the same. */
  async function readCounters(url: string): Promise<void> {
    const server = servers.get(url)
    const response = await get(url, '/metrics', MAX_METRICS_BYTES).catch(() => undefined)
    if (response?.status !== 200 || server !== servers.get(url)) return
    const samples = readSamples(response.body.toString('utf8'), RESTART_SAMPLES)
    for (const { id, role, dpRank } of workersAt(url))
      if (role === 'decode') restarts.sawCounters(id, sumByName(ofEngine(samples, dpRank)))
  }

  const health = new HealthLoop({
    limits: settings.health,
    probe: countedProbe,
    changed: (url, healthy) => {
      const server = servers.get(url)
      if (server !== undefined) server.healthy = healthy
      setHealth(workersAt(url), healthy)
    },
    random: Math.random,
    timers: NODE_TIMERS,
  })
  function setHealth(workers: readonly WorkerSpec[], healthy: boolean): void {
    registry.setHealth(
      workers.map(({ id }) => id),
      healthy,
    )
    for (const { id } of workers)
      log[healthy ? 'info' : 'warn'](
        { worker: id },
        healthy ? 'worker is ready' : 'worker fails its health check',
      )
  }

  function added(worker: WorkerSpec): void {
    const { id, url } = worker
    const server = servers.get(url) ?? { workers: new Map<string, WorkerSpec>() }
    servers.set(url, server)
    server.workers.set(id, worker)
    health.watch(url)
    // Another rank of a known server. Deferred until all listeners have seen that it was added.
    if (server.healthy !== undefined)
      queueMicrotask(() => {
        if (server.workers.get(id) === worker && server.healthy !== undefined)
          setHealth([worker], server.healthy)
      })
  }

  function removed({ id, url }: WorkerSpec): void {
    const server = servers.get(url)
    server?.workers.delete(id)
    if (server?.workers.size !== 0) return
    servers.delete(url)
    health.unwatch(url)
  }

  const unsubscribe = registry.subscribe(({ kind, worker }) => {
    if (kind === 'added') {
      metrics.addWorker(worker.id, worker.role)
      specs.set(worker.id, worker)
      added(worker)
    } else if (kind === 'removed') removed(worker)
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
    health: {
      passiveFailure(id) {
        const url = specs.get(id)?.url
        if (url !== undefined) health.passiveFailure(url)
      },
    },
    restarts,
    onRestart: listener => void restartListeners.push(listener),
    stop() {
      unsubscribe()
      health.stop()
    },
  }
}

function fromSignal(signal: AbortSignal): StopSignal {
  return {
    onStop(listener) {
      const tell = () => listener(new UpstreamFailure('aborted', 'the check was cancelled'))
      if (signal.aborted) queueMicrotask(tell)
      else signal.addEventListener('abort', tell, { once: true })
      return () => signal.removeEventListener('abort', tell)
    },
  }
}
