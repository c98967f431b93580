/** Workers added and removed while streams run, shutdown of the gateway, overload and deadlines. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { Upstreams } from '../../src/gateway/upstream/upstreams.ts'
import { type FakeWorker, startFakeWorker } from '../fake-worker/index.ts'
import { type Cluster, type ClusterOptions, eventsOf, startCluster } from './cluster.ts'
import { ManualClock } from '../manual-clock.ts'
import { RawClient, postBytes } from './raw-socket.ts'
import { type TicketWatch, eventually, gate, metric, stopCluster, watchTickets } from './watching.ts'

let cluster: Cluster
let tickets: TicketWatch
let clock: ManualClock | undefined
const clients: RawClient[] = []
afterEach(async () => {
  clock?.uninstall()
  clock = undefined
  for (const client of clients.splice(0)) client.leave()
  await stopCluster(cluster)
})

async function start(options: ClusterOptions = {}): Promise<void> {
  cluster = await startCluster({ prefill: 1, decode: 1, ...options })
  tickets = watchTickets(cluster)
}

/** A cluster whose deadlines pass only when the test moves the clock. */
async function startWithClock(options: ClusterOptions = {}): Promise<ManualClock> {
  clock = ManualClock.install()
  await start(options)
  return clock
}

const BODY = { prompt: 'Once upon a time', max_tokens: 8, stream: true }
const ask = (more: object = {}, headers: Record<string, string> = {}) =>
  cluster.post('/v1/completions', { ...BODY, ...more }, { headers })
const errorOf = (event: string | undefined) =>
  (JSON.parse(event ?? '{}') as { error: { code: unknown; message: string } }).error
const stateOf = (worker: FakeWorker) =>
  cluster.gateway.context.registry.views(performance.now()).find(({ spec }) => spec.url === worker.url)
const idOf = (worker: FakeWorker) => stateOf(worker)!.spec.id
const sum = (workers: readonly FakeWorker[], of: 'prefill' | 'decode') =>
  workers.reduce((total, { counters }) => total + counters[of], 0)
async function served(more: object = {}): Promise<void> {
  expect((await eventsOf(await ask(more))).at(-1)).toBe('[DONE]')
}
function connect(bytes: string): RawClient {
  const client = new RawClient(cluster.url).send(bytes)
  clients.push(client)
  return client
}

describe('while streams run', () => {
  let spare: FakeWorker | undefined
  beforeEach(() => void (spare = undefined))
  afterEach(() => spare?.close())

  async function heldStreams() {
    await start({ decode: 2, config: { routing: { policy: 'jsq' } } })
    const held = gate()
    for (const decode of cluster.decodes)
      decode.fail({ kind: 'hang', after: 'tokens', tokens: 2, until: held.opened }, { times: 1 })
    const streams = [await ask(), await ask()]
    await Promise.all(cluster.decodes.map(decode => decode.waitForActive(1)))
    const ended = async () => {
      held.open()
      for (const stream of streams) expect((await eventsOf(stream)).at(-1)).toBe('[DONE]')
      await tickets.settled()
    }
    return { registry: cluster.gateway.context.registry, ended }
  }

  it('a drained worker gets no new requests and finishes its streams', async () => {
    const { registry, ended } = await heldStreams()
    const [first, second] = cluster.decodes as [FakeWorker, FakeWorker]
    const id = idOf(first)
    registry.drain(id)
    for (let n = 0; n < 4; n++) await served()
    expect([first.counters.decode, second.counters.decode]).toEqual([1, 5])
    await ended()
    registry.undrain(id)
    for (let n = 0; n < 20; n++) await served()
    expect(first.counters.decode).toBeGreaterThan(1)
  })

  it('a removed worker finishes its streams and disappears from the registry', async () => {
    const { registry, ended } = await heldStreams()
    const [first] = cluster.decodes
    registry.remove(idOf(first!))
    expect(stateOf(first!)).toMatchObject({ leaving: true, inflight: 1 })
    for (let n = 0; n < 4; n++) await served()
    await ended()
    expect(stateOf(first!)).toBeUndefined()
    expect(first!.counters.decode).toBe(1)
  })

  it('a worker that is removed and added again keeps its load', async () => {
    const { registry, ended } = await heldStreams()
    const [first] = cluster.decodes
    const { spec } = stateOf(first!)!
    registry.remove(spec.id)
    expect(registry.add(spec)).toBe('added')
    expect(stateOf(first!)).toMatchObject({ leaving: false, inflight: 1 })
    await eventually(() => stateOf(first!)!.state === 'ready')
    for (let n = 0; n < 20; n++) await served()
    expect(first!.counters.decode).toBeGreaterThan(1)
    await ended()
  })

  it('a worker that is added gets requests as soon as it is healthy', async () => {
    const { registry, ended } = await heldStreams()
    spare = await startFakeWorker({ role: 'decode', prefills: cluster.prefills })
    expect(registry.add({ id: 'spare', role: 'decode', url: spare.url })).toBe('added')
    await eventually(() => stateOf(spare!)!.state === 'ready')
    for (let n = 0; n < 3; n++) await served()
    expect(spare.counters.decode).toBe(3)
    await ended()
    registry.remove('spare')
    expect(stateOf(spare)).toBeUndefined()
  })
})

describe('a gateway that stops', () => {
  it('finishes its streams and refuses new requests meanwhile', async () => {
    await start()
    const held = gate()
    cluster.decodes[0]!.failNext({ kind: 'hang', after: 'tokens', tokens: 2, until: held.opened })
    const client = connect(postBytes(JSON.stringify(BODY)))
    await client.until(text => text.split('"text"').length === 3)
    const stopped = cluster.gateway.stop()
    client.send(postBytes(JSON.stringify(BODY)))
    expect((await ask()).status).toBe(503)
    expect(await (await fetch(`${cluster.url}/ready`)).json()).toMatchObject({ status: 'draining' })
    held.open()
    const [stream, refused] = await client.toEnd()
    expect(stream!.body).toContain('data: [DONE]\n\n')
    expect(refused).toMatchObject({
      status: 503,
      headers: { connection: 'close', 'retry-after': '1', 'x-eldr-error-code': 'ELDR_DRAINING' },
    })
    await stopped
    expect(Object.values(cluster.leftovers()).every(count => count === 0)).toBe(true)
    expect(tickets.dispatches.every(({ ends }) => ends.length === 1)).toBe(true)
  })

  it('ends streams that outlast the grace period, and requests without a response, with ELDR_DRAINING', async () => {
    await start({
      decode: 2,
      config: { server: { shutdownGraceMs: 300 }, routing: { policy: 'round_robin' } },
    })
    cluster.decodes[0]!.fail({ kind: 'hang', after: 'tokens', tokens: 2 })
    cluster.decodes[1]!.fail({ kind: 'hang', after: 'request' })
    const [first, second] = [
      connect(postBytes(JSON.stringify(BODY))),
      connect(postBytes(JSON.stringify(BODY))),
    ]
    await cluster.decodes[1]!.waitForActive(1)
    // One of the two has its first tokens before the grace period starts.
    await Promise.race([first, second].map(client => client.until(text => text.includes('"text"'))))
    await cluster.gateway.stop()
    const answers = [...(await first.toEnd()), ...(await second.toEnd())].toSorted(
      (a, b) => a.status - b.status,
    )
    expect(answers.map(({ status }) => status)).toEqual([200, 503])
    expect(answers[0]!.body).toContain('ELDR_DRAINING')
    expect(answers[0]!.body).not.toContain('[DONE]')
    expect(answers[1]!.headers).toMatchObject({ connection: 'close', 'x-eldr-error-code': 'ELDR_DRAINING' })
    await Promise.all(cluster.decodes.map(decode => decode.waitForActive(0)))
    expect(tickets.dispatches.every(({ ends }) => ends.length === 1)).toBe(true)
  })

  it('fails a request to a connection pool that is closed', async () => {
    await start()
    const upstreams = new Upstreams({ connectMs: 1_000, idleConnectionMs: 1_000 })
    const { url } = cluster.decodes[0]!
    const limits = { timeoutMs: 5_000, maxBytes: 1_000 }
    const asked = upstreams.ask(url, { method: 'GET', path: '/health', headers: {} }, limits)
    upstreams.forget(url)
    await expect(asked).rejects.toMatchObject({ kind: 'reset' })
    upstreams.close()
  })
})

describe('a gateway at capacity', () => {
  const LIMITS = { maxConcurrentRequests: 1, queueSize: 1 }

  it('does not count clients that have not sent their bodies', async () => {
    await start({ config: { limits: { maxConcurrentRequests: 1, queueSize: 0 } } })
    // 100 Continue shows that the gateway waits for the bodies.
    const head =
      'POST /v1/completions HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 100\r\n\r\n'
    await Promise.all(
      [connect(head), connect(head)].map(client => client.until(text => text.includes('100 Continue'))),
    )
    expect((await ask()).status).toBe(200)
  })

  it('queues requests, and refuses those beyond the queue with a Retry-After', async () => {
    await start({ config: { limits: LIMITS } })
    const held = gate()
    cluster.decodes[0]!.failNext({ kind: 'hang', after: 'request', until: held.opened })
    const first = ask()
    await cluster.decodes[0]!.waitForActive(1)
    const both = [ask(), ask()]
    const refused = await Promise.race(both)
    expect(refused.status).toBe(429)
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThanOrEqual(1)
    expect(errorOf(await refused.text())).toMatchObject({ code: 'ELDR_OVERLOADED' })
    held.open()
    expect((await eventsOf(await first)).at(-1)).toBe('[DONE]')
    expect((await Promise.all(both)).map(({ status }) => status).toSorted()).toEqual([200, 429])
    await Promise.all(both.map(async response => ((await response).bodyUsed ? '' : (await response).text())))
    await tickets.settled()
  })

  it('ends the wait of a queued request at the queue timeout, or at its own deadline if that is sooner', async () => {
    const clock = await startWithClock({
      config: { limits: { ...LIMITS, queueSize: 8, queueTimeoutMs: 300 } },
    })
    const held = gate()
    cluster.decodes[0]!.failNext({ kind: 'hang', after: 'request', until: held.opened })
    const first = ask()
    await cluster.decodes[0]!.waitForActive(1)
    const waiting = [ask(), ask({}, { 'x-request-timeout-ms': '100' })] as const
    await eventually(async () => (await metric(cluster, 'eldr_queue_length')) === 2)
    clock.advance(100)
    const sooner = await waiting[1]
    clock.advance(200)
    const late = await waiting[0]
    expect([late.status, errorOf(await late.text()).code]).toEqual([503, 'ELDR_QUEUE_TIMEOUT'])
    expect(Number(late.headers.get('retry-after'))).toBeGreaterThanOrEqual(1)
    expect([sooner.status, errorOf(await sooner.text()).code]).toEqual([504, 'ELDR_DEADLINE'])
    held.open()
    await (await first).text()
    await served()
    await tickets.settled()
  })
})

describe('a deadline', () => {
  it.each([
    ['prefill', { kind: 'hang', after: 'request' }],
    ['decode', { kind: 'hang', after: 'request' }],
    ['decode', { kind: 'hang', after: 'headers' }],
  ] as const)('that passes before %s responds gives 504 ELDR_DEADLINE', async (leg, fault) => {
    const clock = await startWithClock()
    const worker = (leg === 'prefill' ? cluster.prefills : cluster.decodes)[0]!
    worker.fail(fault)
    const asked = ask({}, { 'x-request-timeout-ms': '300' })
    await worker.waitFor(({ held }) => held === 1)
    clock.advance(300)
    const response = await asked
    expect([response.status, errorOf(await response.text()).code]).toEqual([504, 'ELDR_DEADLINE'])
    await worker.waitForAborts(1)
    await tickets.settled()
    expect(tickets.dispatches.at(-1)!.ends).toEqual(['ignored'])
    expect(await metric(cluster, 'eldr_requests_total', { outcome: 'timeout' })).toBe(1)
  })

  it('that passes within a stream is its last event', async () => {
    const clock = await startWithClock()
    cluster.decodes[0]!.fail({ kind: 'hang', after: 'tokens', tokens: 2 })
    const client = connect(postBytes(JSON.stringify(BODY), 'X-Request-Timeout-Ms: 300\r\n'))
    await client.until(text => text.split('"text"').length === 3)
    clock.advance(300)
    await client.until(text => text.includes('"error"'))
    const events = client.text.match(/data: .*/g)!.map(line => line.slice(6))
    expect([events.length, errorOf(events.at(-1)).code]).toEqual([3, 'ELDR_DEADLINE'])
    await tickets.settled()
  })

  it('ends retries too', async () => {
    const clock = await startWithClock({ decode: 2, config: { retries: { backoffMs: 60_000 } } })
    for (const decode of cluster.decodes) decode.fail({ kind: 'status', status: 500 })
    const asked = ask({}, { 'x-request-timeout-ms': '300' })
    await eventually(() => sum(cluster.decodes, 'decode') === 1)
    clock.advance(300)
    const response = await asked
    expect([response.status, errorOf(await response.text()).code]).toEqual([504, 'ELDR_DEADLINE'])
    await tickets.settled()
    expect(sum(cluster.decodes, 'decode')).toBe(1)
  })

  it('that is longer than the request timeout, or invalid, has no effect', async () => {
    const clock = await startWithClock({ config: { timeouts: { requestMs: 300 } } })
    const [decode] = cluster.decodes
    decode!.fail({ kind: 'hang', after: 'request' })
    for (const value of ['60000', 'soon', '-1']) {
      const { held: before } = decode!.counters
      const asked = ask({}, { 'x-request-timeout-ms': value })
      await decode!.waitFor(({ held }) => held > before)
      clock.advance(300)
      expect(errorOf(await (await asked).text()).code).toBe('ELDR_REQUEST_TIMEOUT')
    }
    await tickets.settled()
  })
})

describe('request bodies that never end', () => {
  it('share one memory limit, and requests beyond it get a Retry-After', async () => {
    await start()
    const part = Buffer.alloc(31 << 20, ' ')
    const head = `POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: ${32 << 20}\r\n\r\n`
    const held = Array.from({ length: 9 }, () => connect(head))
    for (const { socket } of held) socket.write(part)
    const refused = await Promise.race(held.map(client => client.answer()))
    expect(refused).toMatchObject({ status: 429, headers: { 'retry-after': '1' } })
    expect(refused.body).toContain('Too many request bodies')
    for (const client of clients.splice(0)) client.leave()
    await served()
  })
})
