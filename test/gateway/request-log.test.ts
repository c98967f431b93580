/** The log line of each request, and the log level. */
import { Writable } from 'node:stream'
import { afterEach, describe, expect, it } from 'vitest'
import { fileSchema } from '../../src/gateway/config/schema/schema.ts'
import { settle } from '../../src/gateway/config/settle.ts'
import { createLog } from '../../src/gateway/observe/log/log.ts'
import { type Gateway, startGateway } from '../../src/gateway/app/start-gateway.ts'
import { temporaryFolder } from '../trace-support.ts'
import { call, errorOf, smallArtifact } from './admin-support.ts'
import { type Cluster, eventsOf, startCluster } from './cluster.ts'
import { startReceiver } from './otlp-receiver.ts'
import { eventually, gate } from './watching.ts'

type Line = Readonly<Record<string, unknown>>

let cluster: Cluster
let gateway: Gateway
let lines: Line[] = []
afterEach(async () => {
  await gateway.stop()
  await cluster.stop()
})

/** A gateway whose log is read, in front of the workers of another. */
async function start(config: Record<string, object> = {}, more: object = {}): Promise<void> {
  cluster = await startCluster(more)
  lines = []
  const out = new Writable({
    write(chunk: Buffer, _, done) {
      lines.push(
        ...chunk
          .toString()
          .trim()
          .split('\n')
          .map(line => JSON.parse(line) as Line),
      )
      done()
    },
  }) as unknown as typeof process.stderr
  const workers = (list: Cluster['decodes'], name: string) =>
    list.map(({ url }, at) => ({ url, id: `${name}${at}` }))
  const settings = settle(
    fileSchema.parse({
      server: { port: 0 },
      retries: { backoffMs: 1 },
      ...config,
      workers: { prefill: workers(cluster.prefills, 'p'), decode: workers(cluster.decodes, 'd') },
    }),
  )
  gateway = await startGateway(settings, createLog(settings.observe, out))
  const { registry } = gateway.context
  const ready = (role: 'prefill' | 'decode') => registry.candidates(role, performance.now()).length
  await eventually(
    () => ready('prefill') === cluster.prefills.length && ready('decode') === cluster.decodes.length,
  )
}

const post = (id: string, body: object = {}, headers: Record<string, string> = {}) =>
  fetch(`${gateway.url}/v1/completions`, {
    method: 'POST',
    headers: { 'x-request-id': id, ...headers },
    body: JSON.stringify({ prompt: 'private words', max_tokens: 6, ...body }),
  })
const lineOf = async (id: string): Promise<Line> => {
  const found = () => lines.filter(({ msg, reqId }) => msg === 'request' && reqId === id)
  await eventually(() => found().length > 0, `a line of ${id}`)
  expect(found()).toHaveLength(1)
  return found()[0]!
}

const WORKER = /^[pd]\d$/
const ms = expect.any(Number) as number

describe('the log line of a request', () => {
  it('has its ids, workers, decision, times and tokens', async () => {
    const folder = temporaryFolder()
    const { path } = await smallArtifact(folder.path, 2)
    await start({ routing: { policy: 'band', artifact: path } }, { decodeOptions: { gapMs: 2 } })
    await eventsOf(await post('a', { stream: true }))
    const line = await lineOf('a')
    expect(line).toEqual({
      level: 30,
      time: expect.any(String) as string,
      msg: 'request',
      reqId: 'a',
      route: 'completions',
      outcome: 'ok',
      status: 200,
      seconds: ms,
      stream: true,
      prefill: expect.stringMatching(WORKER) as string,
      decode: expect.stringMatching(WORKER) as string,
      policy: 'band',
      reason: expect.stringMatching('^band_') as string,
      promptTokens: ms,
      outputTokens: 6,
      prefillMs: ms,
      routeMs: ms,
      ttftMs: ms,
      tpotMs: ms,
    })
    const { seconds, prefillMs, routeMs, ttftMs, tpotMs } = line as Record<string, number>
    expect(prefillMs! + routeMs!).toBeLessThanOrEqual(ttftMs!)
    expect(ttftMs! + 5 * tpotMs!).toBeLessThanOrEqual(1_000 * seconds! + 1)
    expect(tpotMs).toBeGreaterThanOrEqual(1)
    folder.remove()
  })

  it('has the id of the trace, whether the gateway traces or not', async () => {
    await start()
    const traceId = '4bf92f3577b34da6a3ce929d0e0e4736'
    await (await post('off', {}, { traceparent: `00-${traceId}-00f067aa0ba902b7-00` })).text()
    await (await post('none', {}, { traceparent: 'nonsense' })).text()
    expect((await lineOf('off'))['traceId']).toBe(traceId)
    expect(await lineOf('none')).not.toHaveProperty('traceId')
    await gateway.stop()
    await cluster.stop()
    const receiver = await startReceiver()
    await start({ observe: { traces: { endpoint: receiver.url, everyMs: 5 } } })
    await (await post('on')).text()
    expect((await lineOf('on'))['traceId']).toBe((await receiver.traceOf('on')).root.traceId)
    await receiver.close()
  })

  it('of a split request lists its workers and sums its tokens', async () => {
    await start({ routing: { policy: 'round_robin', prefillPolicy: 'round_robin' } })
    await (await post('parts', { n: 2 })).text()
    expect(await lineOf('parts')).toMatchObject({
      parts: 2,
      outputTokens: 12,
      prefill: expect.stringMatching(/^p\d,p\d$/) as string,
      decode: expect.stringMatching(/^d\d,d\d$/) as string,
    })
  })

  it('has retries, queue time, refusals and failures', async () => {
    await start({ limits: { maxConcurrentRequests: 1 }, retries: { max: 1, backoffMs: 1 } })
    const held = gate()
    for (const prefill of cluster.prefills)
      prefill.fail(
        { kind: 'hang', after: 'request', until: held.opened },
        { times: 1, match: ({ headers }) => headers['x-request-id'] === 'first' },
      )
    const first = post('first')
    await eventually(() => cluster.prefills.some(({ counters }) => counters.prefill > 0))
    const second = post('second')
    await eventually(async () =>
      (await (await fetch(`${gateway.url}/metrics`)).text()).includes('eldr_queue_length 1'),
    )
    held.open()
    for (const answer of [first, second]) await (await answer).text()
    expect(await lineOf('first')).not.toHaveProperty('queueMs')
    expect((await lineOf('second'))['queueMs']).toBeGreaterThan(0)
    let failures = 1
    for (const decode of cluster.decodes)
      decode.fail(
        { kind: 'status', status: 500 },
        { match: request => request.isGeneration && failures-- > 0 },
      )
    await (await post('again')).text()
    expect(await lineOf('again')).toMatchObject({ outcome: 'ok', retries: 1 })
    failures = 100
    await (await post('failed')).text()
    const failed = await lineOf('failed')
    expect(failed).toMatchObject({ outcome: 'failed', status: 502, code: 'ELDR_DECODE_FAILED', retries: 1 })
    for (const absent of ['ttftMs', 'tpotMs', 'outputTokens']) expect(failed).not.toHaveProperty(absent)
    await (await post('bad', { n: 0 })).text()
    expect(await lineOf('bad')).toMatchObject({ outcome: 'refused', status: 400, code: 'ELDR_BAD_REQUEST' })
    expect(JSON.stringify(lines)).not.toContain('private words')
  })
})

describe('/eldr/log-level', () => {
  const level = (method: 'GET' | 'PUT', body?: unknown, headers: Record<string, string> = {}) =>
    call(gateway, method, '/eldr/log-level', body, headers)

  it('shows the level and changes what is logged', async () => {
    await start({ observe: { logLevel: 'warn' } })
    expect(await level('GET')).toEqual({ status: 200, json: { level: 'warn', configured: 'warn' } })
    await (await post('quiet')).text()
    expect((await level('PUT', { level: 'debug' })).json).toEqual({ level: 'debug', configured: 'warn' })
    await (await post('loud')).text()
    await lineOf('loud')
    const legs = lines.filter(({ msg, reqId }) => msg === 'leg' && reqId === 'loud')
    expect(legs.map(({ leg, end }) => [leg, end])).toEqual([
      ['prefill', 'handed_off'],
      ['decode', 'served'],
    ])
    expect((await level('PUT', { level: 'warn' })).json).toEqual({ level: 'warn', configured: 'warn' })
    await (await post('quiet')).text()
    await cluster.idle()
    expect(lines.filter(({ reqId }) => reqId === 'quiet')).toEqual([])
  })

  it('reverts after the given time', async () => {
    await start()
    const { json } = await level('PUT', { level: 'debug', forMs: 60 })
    expect(json).toMatchObject({ level: 'debug', configured: 'info' })
    expect(json.leftMs).toBeGreaterThan(0)
    await eventually(async () => (await level('GET')).json.level === 'info')
    expect((await level('GET')).json).toEqual({ level: 'info', configured: 'info' })
  })

  it('refuses an invalid level or time and changes nothing', async () => {
    await start()
    const bodies = [
      {},
      { level: 'loud' },
      { level: 7 },
      { level: null },
      { level: 'trace' },
      { forMs: 5 },
      { level: 'debug', forMs: 0 },
      { level: 'debug', forMs: 1.5 },
      { level: 'debug', forMs: '9' },
      { level: 'debug', forMs: 86_400_001 },
      { level: 'debug', fromMs: 1 },
      ['debug'],
      'debug',
    ]
    for (const body of bodies)
      expect(errorOf(await level('PUT', body)), JSON.stringify(body)).toBe('400 ELDR_BAD_REQUEST')
    expect((await fetch(`${gateway.url}/eldr/log-level`, { method: 'PUT', body: '{' })).status).toBe(400)
    expect(errorOf(await call(gateway, 'POST', '/eldr/log-level', { level: 'debug' }))).toBe(
      '405 ELDR_METHOD',
    )
    expect((await level('GET')).json).toEqual({ level: 'info', configured: 'info' })
  })

  it('requires the admin token if there is one', async () => {
    await start({ server: { port: 0, adminToken: 'sesame' } })
    expect(errorOf(await level('PUT', { level: 'debug' }))).toBe('401 ELDR_UNAUTHORIZED')
    expect(errorOf(await level('GET'))).toBe('401 ELDR_UNAUTHORIZED')
    expect((await level('PUT', { level: 'debug' }, { authorization: 'Bearer sesame' })).status).toBe(200)
  })
})
