/** Trace context: the caller's, sampling, and what is sent to workers. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import * as spans from '../../src/gateway/observe/tracing/span.ts'
import { type Cluster, startCluster } from './cluster.ts'
import { type OtlpReceiver, startReceiver } from './otlp-receiver.ts'

const made = vi.hoisted(() => ({ spans: 0 }))
vi.mock(import('../../src/gateway/observe/tracing/span.ts'), async original => {
  const real = await original()
  class Counted extends real.Span {
    constructor(...args: ConstructorParameters<typeof spans.Span>) {
      super(...args)
      made.spans++
    }
  }
  return { ...real, Span: Counted }
})

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736'
const PARENT = '00f067aa0ba902b7'
const SAMPLED = `00-${TRACE}-${PARENT}-01`

let receiver: OtlpReceiver
let cluster: Cluster
beforeEach(async () => {
  receiver = await startReceiver()
  made.spans = 0
})
afterEach(async () => {
  await cluster.stop()
  await receiver.close()
})
const start = async (traces: object | undefined, config: object = {}) =>
  void (cluster = await startCluster({
    ...(traces && {
      config: { ...config, observe: { traces: { endpoint: receiver.url, everyMs: 5, ...traces } } },
    }),
  }))

const ask = async (id: string, headers: Record<string, string> = {}) => {
  const response = await cluster.post(
    '/v1/completions',
    { prompt: 'a', max_tokens: 2 },
    { headers: { 'x-request-id': id, ...headers } },
  )
  expect(response.status).toBe(200)
  await response.text()
}
/** Trace contexts that the two workers of a request received. */
const told = (id: string) =>
  [...cluster.prefills, ...cluster.decodes]
    .flatMap(({ requests }) => requests)
    .filter(({ headers, isGeneration }) => isGeneration && headers['x-request-id'] === id)
    .map(({ headers }) => headers)

describe('with traces on', () => {
  it('the caller’s trace continues, with its tracestate', async () => {
    await start({ sampleRatio: 0 })
    await ask('mine', { traceparent: SAMPLED, tracestate: 'congo=t61rcWkgMzE, rojo=00f067aa0ba902b7' })
    const { root, children } = await receiver.traceOf('mine')
    expect(root).toMatchObject({
      traceId: TRACE,
      parentSpanId: PARENT,
      flags: 0x301,
      traceState: 'congo=t61rcWkgMzE,rojo=00f067aa0ba902b7',
    })
    expect(children.map(({ flags }) => flags)).toEqual([0x101, 0x101, 0x101])
    for (const headers of told('mine')) {
      expect(headers['traceparent']).toMatch(new RegExp(`^00-${TRACE}-(?!${PARENT})[0-9a-f]{16}-01$`))
      expect(headers['tracestate']).toBe('congo=t61rcWkgMzE,rojo=00f067aa0ba902b7')
    }
    expect(told('mine')).toHaveLength(2)
  })

  it('a caller with an unsampled trace is not traced, and workers get its context unchanged', async () => {
    await start({ sampleRatio: 1 })
    await ask('not', { traceparent: `00-${TRACE}-${PARENT}-00`, tracestate: 'a=b' })
    expect(made.spans).toBe(0)
    expect(told('not').map(({ traceparent, tracestate }) => [traceparent, tracestate])).toEqual(
      [0, 1].map(() => [`00-${TRACE}-${PARENT}-00`, 'a=b']),
    )
    await ask('yes')
    await receiver.traceOf('yes')
    expect(receiver.spans.map(({ traceId }) => traceId)).not.toContain(TRACE)
  })

  it.each([
    `${SAMPLED}-more`,
    `ff-${TRACE}-${PARENT}-01`,
    `00-${'0'.repeat(32)}-${PARENT}-01`,
    SAMPLED.toUpperCase(),
    'nonsense',
  ])('an invalid traceparent starts a new trace: %s', async traceparent => {
    await start({})
    await ask('new', { traceparent, tracestate: 'a=b' })
    const { root } = await receiver.traceOf('new')
    expect(root.parentSpanId).toBeUndefined()
    expect(root.traceId).not.toBe(TRACE)
    expect(root.traceState).toBeUndefined()
    for (const headers of told('new')) {
      expect(headers['traceparent']!.slice(3, 35)).toBe(root.traceId)
      expect(headers).not.toHaveProperty('tracestate')
    }
  })

  it('a ratio of requests is traced, and workers of the others get an unsampled context', async () => {
    await start({ sampleRatio: 0.5 })
    const ids = Array.from({ length: 60 }, (_, at) => `r${at}`)
    await Promise.all(ids.map(id => ask(id)))
    const flags = ids.map(id => new Set(told(id).map(({ traceparent }) => traceparent!.slice(53))))
    for (const each of flags) expect(each.size).toBe(1)
    const traced = ids.filter((_, at) => flags[at]!.has('01'))
    expect(ids.filter((_, at) => flags[at]!.has('00')).length).toBe(60 - traced.length)
    // 60 fair coins: fewer than 10 or more than 50 heads come once in ten million times.
    expect(traced.length).toBeGreaterThanOrEqual(10)
    expect(traced.length).toBeLessThanOrEqual(50)
    await Promise.all(traced.map(id => receiver.traceOf(id)))
    const seen = receiver.spans.flatMap(({ attributes }) => attributes['eldr.request_id'] ?? [])
    expect(seen.toSorted()).toEqual(traced.toSorted())
  })
})

describe('untrusted input', () => {
  it('is in no span: requests without a key, long paths and long states', async () => {
    await start({}, { server: { apiKeys: ['sesame'] } })
    const key = { authorization: 'Bearer sesame' }
    const stranger = await cluster.post(
      '/v1/completions',
      { prompt: 'a' },
      { headers: { 'x-request-id': 'stranger', traceparent: SAMPLED } },
    )
    expect(stranger.status).toBe(401)
    await ask('known', {
      ...key,
      traceparent: SAMPLED,
      tracestate: `a=${'b'.repeat(250)},c=${'d'.repeat(250)},e=${'f'.repeat(250)}`,
    })
    await (
      await fetch(`${cluster.url}/v1/${'x'.repeat(5_000)}`, { headers: { ...key, 'x-request-id': 'long' } })
    ).text()
    const long = await receiver.traceOf('long')
    const known = await receiver.traceOf('known')
    expect([known.root.traceId, known.all.map(({ traceState }) => traceState)]).toEqual([
      TRACE,
      known.all.map(() => undefined),
    ])
    expect((long.root.attributes['url.path'] as string).length).toBe(256)
    expect(receiver.spans.some(({ attributes }) => attributes['eldr.request_id'] === 'stranger')).toBe(false)
  })
})

describe('with traces off', () => {
  it('no span is made, and the caller’s context is passed on unchanged', async () => {
    await start(undefined)
    await ask('passed', { traceparent: SAMPLED, tracestate: 'a=b' })
    await ask('none')
    expect(made.spans).toBe(0)
    expect(told('passed').map(({ traceparent, tracestate }) => [traceparent, tracestate])).toEqual(
      [0, 1].map(() => [SAMPLED, 'a=b']),
    )
    for (const headers of told('none')) expect(headers).not.toHaveProperty('traceparent')
  })

  it('with traces on spans are made', async () => {
    await start({})
    await ask('on')
    expect(made.spans).toBe(4)
  })
})
