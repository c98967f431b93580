/** Traces of real requests through both legs, read back by a collector. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { FakeWorker } from '../fake-worker/index.ts'
import { temporaryFolder } from '../trace-support.ts'
import { smallArtifact } from './admin-support.ts'
import { type Cluster, type ClusterOptions, eventsOf, startCluster } from './cluster.ts'
import { type OtlpReceiver, type ReceivedSpan, startReceiver, type Tree } from './otlp-receiver.ts'
import { SEVERAL_PROCESSES } from './pooled-clusters.ts'
import { eventually, gate, metric } from './watching.ts'

let receiver: OtlpReceiver
let cluster: Cluster
beforeEach(async () => void (receiver = await startReceiver()))
afterEach(async () => {
  await cluster.stop()
  await receiver.close()
})

const start = async ({ config, ...options }: ClusterOptions = {}, traces: object = {}) => {
  const observe = { ...config?.observe, traces: { endpoint: receiver.url, everyMs: 5, ...traces } }
  cluster = await startCluster({ ...options, config: { ...config, observe } })
}
const PROMPT = 'private words'
const ask = (id: string, body: object = {}, headers: Record<string, string> = {}, init: RequestInit = {}) =>
  cluster.post(
    '/v1/completions',
    { prompt: PROMPT, max_tokens: 4, ...body },
    { ...init, headers: { 'x-request-id': id, ...headers } },
  )

const named = ({ children }: Tree, name: string) => children.filter(span => span.name === name)
const names = ({ children }: Tree) => children.map(({ name }) => name)
const legsSeen = (workers: readonly FakeWorker[], id: string) =>
  workers
    .flatMap(({ requests }) => requests)
    .filter(({ isGeneration, headers }) => isGeneration && headers['x-request-id']!.startsWith(id))
const urlOf = (workers: readonly FakeWorker[]) => workers.map(({ url }) => new URL(url).host)

/**
 * One trace; every span but the first is a child of it, with an id of its own, and lies within its parent's
 * time.
 */
function expectTree({ root, children, all }: Tree): void {
  expect(new Set(all.map(({ traceId }) => traceId)).size).toBe(1)
  expect(new Set(all.map(({ spanId }) => spanId)).size).toBe(all.length)
  expect(root.kind).toBe('server')
  for (const span of children) {
    expect(span.parentSpanId).toBe(root.spanId)
    expect(span.startNanos).toBeGreaterThanOrEqual(root.startNanos)
    expect(span.endNanos).toBeLessThanOrEqual(root.endNanos)
  }
  for (const { startNanos, endNanos, events } of all) {
    expect(endNanos).toBeGreaterThanOrEqual(startNanos)
    for (const { nanos } of events) expect(nanos >= startNanos && nanos <= endNanos).toBe(true)
  }
}

/** One after the other. */
function expectOrder(...spans: (ReceivedSpan | undefined)[]): void {
  for (const [at, span] of spans.slice(1).entries())
    expect(span!.startNanos).toBeGreaterThanOrEqual(spans[at]!.endNanos)
}

describe('a traced request', () => {
  it('has a span, one for each leg, and one for the decision', async () => {
    const folder = temporaryFolder()
    const { path } = await smallArtifact(folder.path, 2)
    await start({ config: { routing: { policy: 'band', artifact: path } } })
    const beforeMs = Date.now()
    expect((await eventsOf(await ask('a', { stream: true }))).at(-1)).toBe('[DONE]')
    const tree = await receiver.traceOf('a')
    expectTree(tree)
    expect(names(tree)).toEqual(['prefill', 'route', 'decode'])
    expectOrder(...tree.children)
    const [prefill, route, decode] = tree.children as [ReceivedSpan, ReceivedSpan, ReceivedSpan]
    expect(tree.all.map(({ kind }) => kind).toSorted()).toEqual(['client', 'client', 'internal', 'server'])
    expect(tree.root).toMatchObject({
      name: 'POST /v1/completions',
      parentSpanId: undefined,
      error: undefined,
    })
    expect(tree.root.attributes).toEqual({
      'http.request.method': 'POST',
      'http.route': '/v1/completions',
      'url.path': '/v1/completions',
      'url.scheme': 'http',
      'network.protocol.version': '1.1',
      'http.response.status_code': 200,
      'eldr.request_id': 'a',
      'eldr.outcome': 'ok',
      'eldr.stream': true,
      'eldr.prefill.worker': prefill.attributes['eldr.worker'],
      'eldr.worker': decode.attributes['eldr.worker'],
      'eldr.policy': 'band',
      'eldr.reason': expect.stringMatching('^band_') as string,
      'eldr.similarity': expect.any(Number) as number,
      'eldr.coverage': 1,
      'eldr.band_size': expect.any(Number) as number,
      'eldr.prompt_tokens': expect.any(Number) as number,
      'eldr.output_tokens': 4,
      'eldr.retries': 0,
    })
    expect(urlOf(cluster.prefills)).toContain(prefill.attributes['eldr.worker'])
    expect(urlOf(cluster.decodes)).toContain(decode.attributes['eldr.worker'])
    expect(route.attributes).toMatchObject({
      'eldr.policy': 'band',
      'eldr.worker': decode.attributes['eldr.worker'],
      'eldr.coverage': 1,
    })
    expect(route.attributes['eldr.similarity']).toBe(tree.root.attributes['eldr.similarity'])
    expect(prefill.attributes).toMatchObject({ 'http.response.status_code': 200, 'eldr.attempt': 1 })
    expect(decode.attributes).toMatchObject({
      'http.response.status_code': 200,
      'eldr.attempt': 1,
      'eldr.output_tokens': 4,
    })
    expect(decode.events.map(({ name }) => name)).toEqual(['first_token'])
    const startMs = Number(tree.root.startNanos / 1_000_000n)
    // Spans use the monotonic clock, which may differ from the time of day by an adjustment of that clock.
    const ADJUSTED_MS = 1_000
    expect(startMs).toBeGreaterThan(beforeMs - ADJUSTED_MS)
    expect(startMs).toBeLessThan(Date.now() + ADJUSTED_MS)
    const { path: asked, resource } = receiver.requests[0]!
    expect([asked, resource['service.name']]).toEqual(['/v1/traces', 'eldr'])
    expect(resource['process.pid']).toSatisfy(pid =>
      SEVERAL_PROCESSES ? typeof pid === 'number' : pid === process.pid,
    )
    folder.remove()
  })

  it('sends the leg’s span id to the worker, and no part of the prompt to the collector', async () => {
    await start()
    await (await ask('legs')).text()
    const tree = await receiver.traceOf('legs')
    const [[prefill], [decode]] = [legsSeen(cluster.prefills, 'legs'), legsSeen(cluster.decodes, 'legs')]
    expect(prefill!.headers['traceparent']).toBe(
      `00-${tree.root.traceId}-${named(tree, 'prefill')[0]!.spanId}-01`,
    )
    expect(decode!.headers['traceparent']).toBe(
      `00-${tree.root.traceId}-${named(tree, 'decode')[0]!.spanId}-01`,
    )
    expect(prefill!.headers).not.toHaveProperty('tracestate')
    const text = JSON.stringify(receiver.spans, (_, value: unknown) =>
      typeof value === 'bigint' ? String(value) : value,
    )
    expect(text).not.toContain('private words')
    // A whole response has no first-token time.
    expect(named(tree, 'decode')[0]!.events).toEqual([])
    expect(named(tree, 'decode')[0]!.attributes['eldr.output_tokens']).toBe(4)
  })

  it('has one span per attempt, and the failed one says why', async () => {
    await start()
    for (const [leg, workers] of [
      ['prefill', cluster.prefills],
      ['decode', cluster.decodes],
    ] as const) {
      const scope = { times: 1 }
      const failing = new Set<FakeWorker>()
      for (const worker of workers) {
        worker.fail(
          { kind: 'status', status: 500, message: 'of no interest' },
          {
            ...scope,
            match: request => request.isGeneration && failing.size === 0 && (failing.add(worker), true),
          },
        )
      }
      expect((await ask(`again-${leg}`)).status).toBe(200)
      const tree = await receiver.traceOf(`again-${leg}`)
      expectTree(tree)
      const [first, second, ...more] = named(tree, leg)
      expect(more).toEqual([])
      expect(first).toMatchObject({
        error: 'status 500',
        attributes: { 'error.type': 'status', 'http.response.status_code': 500, 'eldr.attempt': 1 },
      })
      expect(second).toMatchObject({
        error: undefined,
        attributes: { 'http.response.status_code': 200, 'eldr.attempt': 2 },
      })
      expect(first!.attributes['eldr.worker']).not.toBe(second!.attributes['eldr.worker'])
      expectOrder(first, second)
      // A second decode begins with a second prefill, since the first hand-off may have been read.
      expect(names(tree)).toEqual(
        leg === 'prefill'
          ? ['prefill', 'prefill', 'route', 'decode']
          : ['prefill', 'route', 'decode', 'prefill', 'route', 'decode'],
      )
      expect(tree.root).toMatchObject({
        error: undefined,
        attributes: { 'eldr.outcome': 'ok', 'eldr.retries': 1 },
      })
      const sent = legsSeen(workers, `again-${leg}`).map(({ headers }) =>
        headers['traceparent']!.slice(36, 52),
      )
      expect(sent.toSorted()).toEqual([first!.spanId, second!.spanId].toSorted())
      for (const worker of workers) worker.clearFaults()
    }
  })

  it('that fails on every worker has errors on its span and its legs', async () => {
    await start({ decode: 1, config: { retries: { max: 0 } } })
    cluster.decodes[0]!.fail({ kind: 'status', status: 500 })
    expect((await ask('failed')).status).toBe(502)
    const { root, children } = await receiver.traceOf('failed')
    expect(root).toMatchObject({
      error: 'ELDR_DECODE_FAILED',
      attributes: {
        'eldr.outcome': 'failed',
        'error.type': 'ELDR_DECODE_FAILED',
        'eldr.error_code': 'ELDR_DECODE_FAILED',
        'http.response.status_code': 502,
      },
    })
    expect(children.map(({ error }) => error)).toEqual([undefined, undefined, 'status 500'])
  })

  it('that breaks within its stream has its first token and the failure', async () => {
    await start()
    for (const decode of cluster.decodes) decode.fail({ kind: 'reset', after: 'tokens', tokens: 2 })
    expect((await eventsOf(await ask('broken', { stream: true }))).at(-1)).toContain('ELDR_STREAM_BROKEN')
    const tree = await receiver.traceOf('broken')
    const [decode] = named(tree, 'decode')
    expect(decode).toMatchObject({
      error: expect.any(String) as string,
      attributes: { 'error.type': 'reset', 'eldr.output_tokens': 2 },
    })
    expect(decode!.events.map(({ name }) => name)).toEqual(['first_token'])
    expect(tree.root).toMatchObject({
      error: 'broken',
      attributes: { 'eldr.outcome': 'broken', 'http.response.status_code': 200 },
    })
  })

  it('whose client leaves ends without an error', async () => {
    await start()
    const stop = new AbortController()
    for (const decode of cluster.decodes) decode.fail({ kind: 'hang', after: 'tokens', tokens: 1 })
    const response = await ask('gone', { stream: true }, {}, { signal: stop.signal })
    await response.body!.getReader().read()
    stop.abort()
    const tree = await receiver.traceOf('gone')
    expectTree(tree)
    expect(tree.root).toMatchObject({ error: undefined, attributes: { 'eldr.outcome': 'client_gone' } })
    expect(named(tree, 'decode')[0]).toMatchObject({
      error: undefined,
      attributes: { 'eldr.stopped': 'client_gone' },
    })
    await cluster.idle()
  })

  it('that is split has the legs of every part in one trace', async () => {
    await start()
    await (await ask('choices', { n: 2 })).text()
    await (
      await cluster.post(
        '/v1/completions',
        { prompt: ['a', 'b', 'c'], max_tokens: 3, stream: true },
        { headers: { 'x-request-id': 'list' } },
      )
    ).text()
    for (const [id, parts] of [
      ['choices', 2],
      ['list', 3],
    ] as const) {
      const tree = await receiver.traceOf(id)
      expectTree(tree)
      expect(tree.root.attributes['eldr.parts']).toBe(parts)
      for (const name of ['prefill', 'route', 'decode']) {
        const ids = named(tree, name).map(({ attributes }) => attributes['eldr.part'])
        expect(ids.toSorted()).toEqual(Array.from({ length: parts }, (_, at) => `${id}-${at}`))
      }
      for (let at = 0; at < parts; at++)
        expectOrder(...tree.children.filter(({ attributes }) => attributes['eldr.part'] === `${id}-${at}`))
      const seen = legsSeen([...cluster.prefills, ...cluster.decodes], id)
      expect(seen.length).toBe(2 * parts)
      for (const { headers, leg } of seen) {
        const span = named(tree, leg).find(
          ({ attributes }) => attributes['eldr.part'] === headers['x-request-id'],
        )!
        expect(headers['traceparent']).toBe(`00-${tree.root.traceId}-${span.spanId}-01`)
      }
    }
    expect((await receiver.traceOf('choices')).root.attributes['eldr.output_tokens']).toBe(8)
  })

  it('for one token has one leg, as do passed-through requests', async () => {
    await start()
    await (await ask('one', { max_tokens: 1 })).text()
    expect(names(await receiver.traceOf('one'))).toEqual(['prefill'])
    await (await fetch(`${cluster.url}/v1/models`, { headers: { 'x-request-id': 'models' } })).text()
    const models = await receiver.traceOf('models')
    expectTree(models)
    expect([models.root.name, ...names(models)]).toEqual(['GET /v1/models', 'relay'])
    await (await fetch(`${cluster.url}/v1/whatever/1`, { headers: { 'x-request-id': 'other' } })).text()
    expect((await receiver.traceOf('other')).root).toMatchObject({
      name: 'GET /v1/*',
      attributes: { 'eldr.outcome': 'worker_refused', 'http.response.status_code': 404 },
    })
    for (const path of ['/health', '/metrics', '/eldr/workers'])
      await (await fetch(`${cluster.url}${path}`)).text()
    await (await ask('last')).text()
    await receiver.traceOf('last')
    expect(new Set(receiver.spans.filter(({ kind }) => kind === 'server').map(({ name }) => name))).toEqual(
      new Set(['POST /v1/completions', 'GET /v1/models', 'GET /v1/*']),
    )
  })

  it('that was queued shows how long, and one beyond the queue shows the refusal', async () => {
    await start({ config: { limits: { maxConcurrentRequests: 1, queueSize: 1 } } })
    const held = gate()
    for (const prefill of cluster.prefills)
      prefill.fail({ kind: 'hang', after: 'request', until: held.opened }, { times: 1 })
    const first = ask('first')
    await eventually(() => cluster.prefills.some(({ counters }) => counters.prefill > 0))
    const second = ask('second')
    await eventually(async () => (await metric(cluster, 'eldr_queue_length')) === 1)
    expect((await ask('refused')).status).toBe(429)
    for (const prefill of cluster.prefills) prefill.clearFaults()
    held.open()
    for (const answer of [first, second]) await (await answer).text()
    const [one, two, refused] = await Promise.all(
      ['first', 'second', 'refused'].map(id => receiver.traceOf(id)),
    )
    expect(names(one!)).toEqual(['prefill', 'route', 'decode'])
    expect(names(two!)).toEqual(['queue', 'prefill', 'route', 'decode'])
    expectTree(two!)
    expectOrder(...two!.children)
    expect(refused!.children).toEqual([])
    expect(refused!.root).toMatchObject({
      error: undefined,
      attributes: {
        'eldr.outcome': 'refused',
        'eldr.error_code': 'ELDR_OVERLOADED',
        'http.response.status_code': 429,
      },
    })
  })

  it('that waits too long in the queue fails there', async () => {
    await start({ config: { limits: { maxConcurrentRequests: 1, queueSize: 1, queueTimeoutMs: 30 } } })
    const held = gate()
    for (const prefill of cluster.prefills)
      prefill.fail({ kind: 'hang', after: 'request', until: held.opened })
    const first = ask('first')
    await eventually(() => cluster.prefills.some(({ counters }) => counters.prefill > 0))
    expect((await ask('late')).status).toBe(503)
    const late = await receiver.traceOf('late')
    expect(late.children).toMatchObject([{ name: 'queue', error: 'ELDR_QUEUE_TIMEOUT' }])
    expect(late.root.error).toBe('ELDR_QUEUE_TIMEOUT')
    held.open()
    await (await first).text()
  })
})
