/**
 * Gateways in this process that are replicas of each other, in front of the same fake workers. Each has its
 * own registry, log and sockets.
 */
import { pino } from 'pino'
import { readSamples } from '../../../src/cluster/metrics-text.ts'
import { fileSchema } from '../../../src/gateway/config/schema/schema.ts'
import { settle } from '../../../src/gateway/config/settle.ts'
import { type Gateway, type GatewayOptions, startGateway } from '../../../src/gateway/app/start-gateway.ts'
import { type FakeWorker, type FakeWorkerOptions, startFakeWorker } from '../../fake-worker/index.ts'
import { SHAPE } from '../../gateway/cluster.ts'

export const LEASE_MS = 600

export interface Replica {
  readonly gateway: Gateway
  readonly url: string
  readonly lines: readonly Record<string, unknown>[]
  /** Own and other replicas' requests on all workers. */
  inflight(): { own: number; elsewhere: number }
  // oxlint-disable-next-line typescript/no-explicit-any -- tests know the response
  get(path: string): Promise<any>
  change(method: string, path: string, body?: object | Buffer): Promise<Response>
  post(body: object): Promise<Response>
  metric(name: string, labels?: Record<string, string>): Promise<number | undefined>
}

export interface Stage {
  readonly prefill: FakeWorker
  readonly decodes: readonly FakeWorker[]
  replica(url: string, more?: Record<string, object>, options?: GatewayOptions): Promise<Replica>
  close(): Promise<void>
}

/** `counts`: what prefill sends with its hand-offs. `gapMs`: between tokens. */
export async function startStage(
  decodes = 2,
  { counts = SHAPE, gapMs }: Pick<FakeWorkerOptions, 'counts' | 'gapMs'> = {},
): Promise<Stage> {
  const prefill = await startFakeWorker({ role: 'prefill', counts })
  const started = await Promise.all(
    Array.from({ length: decodes }, () => startFakeWorker({ role: 'decode', prefills: [prefill], gapMs })),
  )
  const running: Gateway[] = []
  return {
    prefill,
    decodes: started,
    async replica(url, more = {}, options = {}) {
      const lines: Record<string, unknown>[] = []
      const log = pino(
        { base: null, timestamp: false },
        { write: (line: string) => void lines.push(JSON.parse(line) as Record<string, unknown>) },
      )
      const form = {
        server: { port: 0 },
        workers: {
          prefill: [{ url: prefill.url, id: 'p' }],
          decode: started.map((worker, at) => ({ url: worker.url, id: `d${at}` })),
        },
        ...more,
        replicas: { url, leaseMs: LEASE_MS, timeoutMs: 400, retryMs: 20, ...more['replicas'] },
      }
      const gateway = await startGateway(settle(fileSchema.parse(form)), log, options)
      running.push(gateway)
      const { registry } = gateway.context
      const views = () => registry.views(performance.now())
      await until(
        'workers to be ready',
        () =>
          registry.candidates('decode', performance.now()).length === decodes &&
          registry.hasCandidates('prefill', performance.now()),
      )
      const ask = (method: string, path: string, body?: object | Buffer) =>
        fetch(`${gateway.url}${path}`, {
          method,
          ...(body !== undefined && {
            body: Buffer.isBuffer(body) ? new Uint8Array(body) : JSON.stringify(body),
          }),
          headers: {
            'content-type': Buffer.isBuffer(body) ? 'application/octet-stream' : 'application/json',
          },
        })
      return {
        gateway,
        url: gateway.url,
        lines,
        inflight: () => ({
          own: views().reduce((sum, { inflight }) => sum + inflight, 0),
          elsewhere: views().reduce((sum, { inflightElsewhere }) => sum + inflightElsewhere, 0),
        }),
        get: async path => (await ask('GET', path)).json(),
        change: ask,
        post: body => ask('POST', '/v1/completions', body),
        async metric(name, labels = {}) {
          const text = await (await ask('GET', '/metrics')).text()
          const found = readSamples(text, new Set([name])).find(sample =>
            Object.entries(labels).every(([key, value]) => sample.labels[key] === value),
          )
          return found?.value
        },
      }
    },
    async close() {
      await Promise.all(running.map(gateway => gateway.stop()))
      await Promise.all([prefill, ...started].map(worker => worker.close()))
    },
  }
}

/** Polls a condition that has no event. Throws after the timeout. Returns how long it took. */
export async function until(
  what: string,
  holds: () => boolean | Promise<boolean>,
  timeoutMs = 30_000,
): Promise<number> {
  const startMs = performance.now()
  while (!(await holds())) {
    if (performance.now() - startMs > timeoutMs) throw new Error(`timed out after ${timeoutMs} ms: ${what}`)
    await new Promise(resolve => setTimeout(resolve, 1))
  }
  return performance.now() - startMs
}

/** A stream on a decode worker that pauses after two tokens until `release` is called. */
export async function heldStream(replica: Replica, { decodes }: Stage) {
  let release = () => {}
  const gate = new Promise<void>(resolve => (release = resolve))
  for (const worker of decodes) worker.fail({ kind: 'hang', after: 'tokens', tokens: 2, until: gate })
  const response = await replica.post({ prompt: 'a', max_tokens: 6, stream: true })
  for (const worker of decodes) worker.clearFaults()
  return { response, release, text: () => response.text() }
}
