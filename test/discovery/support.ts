/** A gateway with discovery, and pods for it to find: fake workers with one port, each at its own address. */
import { pino } from 'pino'
import { readSamples } from '../../src/cluster/metrics-text.ts'
import type { WorkerView } from '../../src/cluster/registry.ts'
import { fileSchema } from '../../src/gateway/config/schema/schema.ts'
import { settle } from '../../src/gateway/config/settle.ts'
import { type Gateway, startGateway } from '../../src/gateway/app/start-gateway.ts'
import { type FakeWorker, startFakeWorker } from '../fake-worker/index.ts'
import { SHAPE } from '../gateway/cluster.ts'

export interface Discovering {
  readonly gateway: Gateway
  readonly url: string
  /** Log lines. */
  readonly lines: readonly Record<string, unknown>[]
  /** Waits for a worker change or a log line that makes it true. The limit is a safety net. */
  until(holds: () => boolean): Promise<void>
  /** State of each worker by its name. */
  states(): Record<string, string>
  view(id: string): WorkerView | undefined
  // oxlint-disable-next-line typescript/no-explicit-any -- tests know what the gateway answers
  get(path: string): Promise<any>
  post(body: object): Promise<Response>
  metric(name: string, labels?: Record<string, string>): Promise<number | undefined>
  warnings(): string[]
}

const PATIENCE_MS = 60_000

export async function startDiscovering(discovery: object, config: object = {}): Promise<Discovering> {
  const lines: Record<string, unknown>[] = []
  const watchers = new Set<() => void>()
  const wake = () => {
    for (const watcher of watchers) queueMicrotask(watcher)
  }
  const log = pino(
    { base: null, timestamp: false },
    { write: (line: string) => void (lines.push(JSON.parse(line) as Record<string, unknown>), wake()) },
  )
  const form = {
    server: { port: 0 },
    retries: { backoffMs: 1 },
    routing: { policy: 'jsq' },
    discovery: { removeAfterMs: 100, retryMs: 20, ...discovery },
    ...config,
  }
  const gateway = await startGateway(settle(fileSchema.parse(form)), log)
  const { registry } = gateway.context
  registry.subscribe(wake)
  const views = () => registry.views(performance.now())
  const states = () =>
    Object.fromEntries(views().map(({ spec, state, leaving }) => [spec.id, leaving ? 'leaving' : state]))
  const { url } = gateway
  return {
    gateway,
    url,
    lines,
    states,
    view: id => views().find(({ spec }) => spec.id === id),
    until: holds =>
      new Promise((resolve, reject) => {
        const check = () => {
          if (!holds()) return
          clearTimeout(timer)
          watchers.delete(check)
          resolve()
        }
        const timer = setTimeout(() => {
          watchers.delete(check)
          reject(
            new Error(
              `not within ${PATIENCE_MS} ms: ${String(holds)}; ${JSON.stringify(states())}; ${JSON.stringify(lines.slice(-8))}`,
            ),
          )
        }, PATIENCE_MS)
        watchers.add(check)
        check()
      }),
    get: async path => (await fetch(`${url}${path}`)).json(),
    post: body =>
      fetch(`${url}/v1/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      }),
    async metric(name, labels = {}) {
      const text = await (await fetch(`${url}/metrics`)).text()
      const samples = readSamples(text, new Set([name])).filter(sample =>
        Object.entries(labels).every(([key, value]) => sample.labels[key] === value),
      )
      return samples.length === 0 ? undefined : samples.reduce((sum, { value }) => sum + value, 0)
    },
    warnings: () =>
      lines
        .filter(({ level, source }) => Number(level) >= 40 && source !== undefined)
        .map(({ msg }) => String(msg)),
  }
}

export interface Pods {
  readonly prefill: FakeWorker
  readonly decodes: readonly FakeWorker[]
  readonly port: number
  close(): Promise<void>
}

/** Prefill at 127.0.0.1, decode from 127.0.0.2 on, with this many ranks each. */
export async function startPods(decodes: number, ranks = 1): Promise<Pods> {
  const prefill = await startFakeWorker({ role: 'prefill', counts: SHAPE })
  const { port } = prefill
  const started = await Promise.all(
    Array.from({ length: decodes }, (_, n) =>
      startFakeWorker({ role: 'decode', ranks, prefills: [prefill], host: `127.0.0.${n + 2}`, port }),
    ),
  )
  return {
    prefill,
    decodes: started,
    port,
    async close() {
      await Promise.all([prefill, ...started].map(worker => worker.close()))
    },
  }
}

/** Data of the events of a stream. */
export async function eventsOf(response: Response): Promise<string[]> {
  return (await response.text())
    .split('\n\n')
    .filter(event => event.startsWith('data: '))
    .map(event => event.slice(6))
}

/** A started stream on each of these workers (all there are), held until released. */
export async function heldStreams({ post }: Discovering, workers: readonly FakeWorker[]) {
  let release = () => {}
  const until = new Promise<void>(resolve => (release = resolve))
  for (const worker of workers) worker.fail({ kind: 'hang', after: 'tokens', tokens: 2, until })
  const responses = await Promise.all(workers.map(() => post({ prompt: 'a', max_tokens: 6, stream: true })))
  for (const worker of workers) worker.clearFaults()
  return { release, events: () => Promise.all(responses.map(eventsOf)) }
}
