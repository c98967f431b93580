/** A gateway in front of fake workers, on real sockets, with the settings of the test. */
import type { CreateAdaptation } from '../../src/gateway/app/adaptation.ts'
import type { Settings } from '../../src/gateway/config/settings.ts'
import { fileSchema } from '../../src/gateway/config/schema/schema.ts'
import { settle } from '../../src/gateway/config/settle.ts'
import type { EngineAdapter } from '../../src/gateway/engines/engine.ts'
import type { RequestObserver } from '../../src/gateway/observe/request-observer.ts'
import { createLog } from '../../src/gateway/observe/log/log.ts'
import { type Gateway, type GatewayOptions, startGateway } from '../../src/gateway/app/start-gateway.ts'
import type { ProcessCluster } from './process-cluster.ts'
import { type FakeWorker, type FakeWorkerOptions, startFakeWorker } from '../fake-worker/index.ts'
import { eventually } from './watching.ts'

export interface ClusterOptions {
  readonly prefill?: number
  readonly decode?: number
  readonly prefillOptions?: FakeWorkerOptions
  readonly decodeOptions?: FakeWorkerOptions
  /** In place of the configured engine. */
  readonly engine?: EngineAdapter
  /** Further listeners of requests. */
  readonly observers?: readonly RequestObserver[]
  /** Live recalibration (default: none). */
  readonly createAdaptation?: CreateAdaptation
  /** Starts a successor, for the admin API (default: none). */
  readonly replace?: GatewayOptions['replace']
  /** Parts of the configuration file. */
  readonly config?: { readonly [section in keyof Settings]?: Record<string, unknown> }
}

export interface Cluster {
  readonly gateway: Gateway
  readonly url: string
  readonly prefills: readonly FakeWorker[]
  readonly decodes: readonly FakeWorker[]
  post(path: string, body: unknown, init?: RequestInit): Promise<Response>
  /** Counts that must all be 0 when nothing is in flight. */
  leftovers(): Record<string, number>
  /** Resolves when the leftovers are all 0. */
  idle(): Promise<void>
  stop(): Promise<void>
}

export const SHAPE = { layers: 2, experts: 8, topK: 2 } as const

/**
 * With ELDR_TEST_PROCESSES the gateway runs as several processes (`test/processes`), and tests cannot reach
 * its internals.
 */
export async function startCluster(options: ClusterOptions = {}): Promise<Cluster> {
  const processes = Number(process.env['ELDR_TEST_PROCESSES'] ?? 1)
  if (processes > 1)
    return outside(
      await (await import('./process-cluster.ts')).startProcessCluster({ ...options, processes }),
    )
  const many = (count: number, more: FakeWorkerOptions) =>
    Promise.all(Array.from({ length: count }, () => startFakeWorker(more)))
  const prefills = await many(options.prefill ?? 2, {
    role: 'prefill',
    counts: SHAPE,
    ...options.prefillOptions,
  })
  const decodes = await many(options.decode ?? 2, { role: 'decode', prefills, ...options.decodeOptions })
  const { config = {} } = options
  const settings = settle(
    fileSchema.parse({
      ...config,
      server: { port: 0, ...config.server },
      workers: {
        prefill: prefills.map(({ url }) => ({ url })),
        decode: decodes.map(({ url }) => ({ url })),
        ...config.workers,
      },
      retries: { backoffMs: 1, ...config.retries },
      // A machine that is held up for a moment must not fail a connection.
      timeouts: { connectMs: 60_000, ...config.timeouts },
    }),
  )
  const log = createLog({ logLevel: 'silent', logFormat: 'json' })
  const { engine, observers, createAdaptation, replace } = options
  const gateway = await startGateway(settings, log, { engine, observers, createAdaptation, replace })
  const { registry } = gateway.context
  const ready = () =>
    registry.candidates('prefill', performance.now()).length >= prefills.length &&
    registry.candidates('decode', performance.now()).length >= decodes.length
  await until(ready, listener => registry.subscribe(listener))
  const leftovers = () => {
    const views = registry.views(performance.now())
    const sum = (of: (view: (typeof views)[number]) => number) =>
      views.reduce((total, view) => total + of(view), 0)
    const active = [...prefills, ...decodes].reduce((total, { counters }) => total + counters.active, 0)
    return { inflight: sum(({ inflight }) => inflight), tokens: sum(({ tokens }) => tokens), active }
  }
  return {
    gateway,
    url: gateway.url,
    prefills,
    decodes,
    post: (path, body, init) =>
      fetch(`${gateway.url}${path}`, {
        method: 'POST',
        body: typeof body === 'string' ? body : JSON.stringify(body),
        ...init,
        headers: { 'content-type': 'application/json', ...init?.headers },
      }),
    leftovers,
    idle: () =>
      eventually(
        () => Object.values(leftovers()).every(count => count === 0),
        () => `nothing in flight: ${JSON.stringify(leftovers())}`,
      ),
    async stop() {
      await gateway.stop()
      await Promise.all([...prefills, ...decodes].map(worker => worker.close()))
    },
  }
}

/** The part of a cluster that works for a gateway in other processes. */
function outside(cluster: ProcessCluster): Cluster {
  const hidden = () => {
    throw new Error('the internals of a gateway of several processes cannot be reached')
  }
  const gateway = new Proxy(
    { url: cluster.url, stop: () => cluster.process.stop().then(() => {}) } as Gateway,
    {
      get: (target, name) => (name in target ? target[name as keyof Gateway] : hidden()),
    },
  )
  return { ...cluster, gateway, leftovers: hidden }
}

function until(holds: () => boolean, subscribe: (listener: () => void) => () => void): Promise<void> {
  return new Promise(resolve => {
    const check = () => {
      if (!holds()) return
      unsubscribe()
      resolve()
    }
    const unsubscribe = subscribe(check)
    queueMicrotask(check)
  })
}

/** Data of the events of a stream. */
export async function eventsOf(response: Response): Promise<string[]> {
  return (await response.text())
    .split('\n\n')
    .filter(event => event.startsWith('data: '))
    .map(event => event.slice(6))
}
