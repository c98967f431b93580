/** A collector that is down, slow, full or broken loses spans, which are counted, and never a request. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { ManualClock } from '../manual-clock.ts'
import { type Cluster, type ClusterOptions, startCluster } from './cluster.ts'
import { type OtlpReceiver, startReceiver } from './otlp-receiver.ts'
import { eventually, gate, metric, stopCluster } from './watching.ts'

let receiver: OtlpReceiver
let cluster: Cluster
let clock: ManualClock | undefined
let stopped = false
beforeEach(async () => {
  receiver = await startReceiver()
  stopped = false
})
afterEach(async () => {
  clock?.uninstall()
  clock = undefined
  if (!stopped) await stop()
  await receiver.close()
})
const start = async (traces: object = {}, options: ClusterOptions = {}) =>
  void (cluster = await startCluster({
    ...options,
    config: { observe: { traces: { endpoint: receiver.url, everyMs: 5, flushMs: 200, ...traces } } },
  }))
/** Stops the gateway. Returns how long that took on the clock of the test. */
const stop = async () => {
  stopped = true
  const fromMs = performance.now()
  await stopCluster(cluster)
  return performance.now() - fromMs
}

/** An export timeout that never expires: a shutdown that waited for it would hang the test. */
const ENDLESS_MS = 3_600_000

/** A request has four spans: its own, two legs and the decision. */
const SPANS = 4
const ask = async (times = 1) => {
  for (let at = 0; at < times; at++) {
    const response = await cluster.post(
      '/v1/completions',
      { prompt: 'a', max_tokens: 2 },
      { headers: { 'x-request-id': `r${at}` } },
    )
    expect(response.status).toBe(200)
    await response.text()
  }
}
const sent = () => metric(cluster, 'eldr_trace_spans_total')
const dropped = (reason?: string) =>
  metric(cluster, 'eldr_trace_spans_dropped_total', reason === undefined ? {} : { reason })
/** From the registry itself, since a stopped gateway does not listen. */
const lastSent = async () => (await cluster.gateway.context.metrics.traceSpans.get()).values[0]!.value
const lastDropped = async () => {
  const { values } = await cluster.gateway.context.metrics.traceSpansDropped.get()
  return Object.fromEntries(values.map(({ labels, value }) => [labels['reason'], value]))
}

describe('a healthy collector', () => {
  it('gets every span once, in batches of whole traces, with the configured headers', async () => {
    await start({ batchSpans: 10, everyMs: 60_000, headers: ['authorization=Bearer sesame', 'X-Scope=a=b'] })
    await ask(5)
    await receiver.until(() => receiver.spans.length >= 3 * SPANS)
    await stop()
    expect(receiver.spans.length).toBe(5 * SPANS)
    expect(new Set(receiver.spans.map(({ spanId }) => spanId)).size).toBe(5 * SPANS)
    expect(Math.max(...receiver.requests.map(({ spans }) => spans.length))).toBeLessThanOrEqual(10)
    for (const { spans } of receiver.requests) expect(spans.length % SPANS).toBe(0)
    for (const { headers, path } of receiver.requests) {
      expect([path, headers.authorization, headers['x-scope']]).toEqual([
        '/v1/traces',
        'Bearer sesame',
        'a=b',
      ])
    }
    expect([await lastSent(), await lastDropped()]).toEqual([5 * SPANS, {}])
  })

  it('may have a path', async () => {
    await start({ endpoint: `${receiver.url}/otlp/` })
    await ask()
    await receiver.until(() => receiver.spans.length === SPANS)
    expect(receiver.requests[0]!.path).toBe('/otlp/v1/traces')
  })

  it('gets the remaining spans when the gateway stops', async () => {
    await start({ everyMs: 60_000 })
    await ask(3)
    expect(receiver.spans).toEqual([])
    await stop()
    expect(receiver.spans.length).toBe(3 * SPANS)
    expect(await lastSent()).toBe(3 * SPANS)
  })
})

describe('a collector that', () => {
  it('cannot be reached fails no request and does not prevent the gateway from stopping', async () => {
    clock = ManualClock.install()
    await start({ queueSpans: 5 * SPANS, batchSpans: SPANS, timeoutMs: ENDLESS_MS })
    await receiver.close()
    await ask(20)
    // Five traces are queued; the rest did not fit.
    expect(await dropped('queue_full')).toBe(15 * SPANS)
    expect(await sent()).toBe(0)
    await clock.during(stop(), 1)
    expect(await lastDropped()).toEqual({ queue_full: 15 * SPANS, shutdown: 5 * SPANS })
    receiver = await startReceiver()
  })

  it('never responds delays only its own batch, and shutdown by the flush timeout', async () => {
    clock = ManualClock.install()
    await start({ batchSpans: SPANS, queueSpans: 3 * SPANS, timeoutMs: ENDLESS_MS })
    const asked = gate()
    receiver.answer = () => asked.open()
    await ask(6)
    await asked.opened
    expect(await dropped('queue_full')).toBe(3 * SPANS)
    expect(await clock.during(stop(), 1)).toBeGreaterThanOrEqual(200)
    expect(await lastDropped()).toEqual({ queue_full: 3 * SPANS, shutdown: 3 * SPANS })
  })

  it('does not respond in time is asked again', async () => {
    clock = ManualClock.install()
    await start({ timeoutMs: 5_000, batchSpans: SPANS })
    const usual = receiver.answer
    receiver.answer = () => {
      receiver.answer = usual
    }
    await ask()
    await receiver.until(() => receiver.requests.length === 1)
    clock.advance(5_000)
    await receiver.until(() => receiver.requests.length === 2)
    await eventually(async () => (await sent()) === SPANS)
    expect(await dropped()).toBe(0)
  })

  it.each([500, 400, 404, 301])('responds with %i does not get the same spans again', async status => {
    await start()
    receiver.answer = response => response.writeHead(status).end('no')
    await ask()
    await eventually(async () => (await dropped('failed')) === SPANS)
    expect(receiver.requests.length).toBe(1)
    receiver.answer = response => response.writeHead(200).end()
    await ask()
    await eventually(async () => (await sent()) === SPANS)
    expect(receiver.requests.length).toBe(2)
  })

  it.each([429, 502, 503, 504])('responds with %i is asked again, and nothing is lost', async status => {
    await start()
    const usual = receiver.answer
    receiver.answer = response => {
      receiver.answer = usual
      response.writeHead(status).end()
    }
    await ask()
    await eventually(async () => (await sent()) === SPANS)
    expect(receiver.requests.map(({ spans }) => spans.length)).toEqual([SPANS, SPANS])
    expect(receiver.requests[0]!.spans).toEqual(receiver.requests[1]!.spans)
    expect(await dropped()).toBe(0)
  })

  it.each([
    ['{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}', 3],
    ['{"partialSuccess":{"rejectedSpans":1}}', 1],
    ['{"partialSuccess":{"rejectedSpans":"1000"}}', SPANS],
    ['{"partialSuccess":{"errorMessage":"a word of warning"}}', 0],
    ['{"partialSuccess":{"rejectedSpans":-1}}', 0],
    ['not JSON', 0],
    ['null', 0],
    [`"${'x'.repeat(200_000)}"`, 0],
  ])('rejects a part of the spans: case %#', async (body, rejected) => {
    await start()
    receiver.answer = response => response.writeHead(200, { 'content-type': 'application/json' }).end(body)
    await ask()
    await eventually(async () => (await sent()) + (await dropped()) === SPANS)
    expect(await dropped('rejected')).toBe(rejected)
    expect(receiver.requests.length).toBe(1)
  })

  it('breaks the connection is asked again', async () => {
    await start()
    const usual = receiver.answer
    receiver.answer = response => {
      receiver.answer = usual
      response.destroy()
    }
    await ask()
    await eventually(async () => (await sent()) === SPANS)
    expect(receiver.requests.length).toBe(2)
  })

  it('recovers gets the spans that were queued', async () => {
    await start({ batchSpans: SPANS })
    let failures = 2
    receiver.answer = response => response.writeHead(failures-- > 0 ? 503 : 200).end()
    await ask(4)
    await receiver.until(() => failures <= 0 - 4)
    await eventually(async () => (await sent()) === 4 * SPANS)
    expect(await dropped()).toBe(0)
  })
})

describe('a request with very many legs', () => {
  it('is traced in part, and the spans left out are counted', async () => {
    await start(
      { queueSpans: 100_000 },
      { decodeOptions: { recordLimit: 10_000 }, prefillOptions: { recordLimit: 10_000 } },
    )
    const response = await cluster.post(
      '/v1/completions',
      { prompt: 'a', n: 120, max_tokens: 2 },
      { headers: { 'x-request-id': 'many' } },
    )
    expect(response.status).toBe(200)
    await response.text()
    const tree = await receiver.traceOf('many')
    expect(tree.all.length).toBe(256)
    await eventually(async () => (await dropped('too_many')) === 1 + 3 * 120 - 256)
    // Legs without a span carry the id of the request's span.
    const legs = [...cluster.prefills, ...cluster.decodes]
      .flatMap(({ requests }) => requests)
      .filter(({ isGeneration }) => isGeneration)
    const ids = new Set(tree.all.map(({ spanId }) => spanId))
    expect(legs.length).toBe(240)
    for (const { headers } of legs) {
      expect(headers['traceparent']!.slice(3, 35)).toBe(tree.root.traceId)
      expect(ids.has(headers['traceparent']!.slice(36, 52))).toBe(true)
    }
  })
})
