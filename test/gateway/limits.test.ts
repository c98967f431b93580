/** Workers that come and go while streams run, the end of the gateway, overload and deadlines. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { Upstreams } from '../../src/gateway/upstream/upstreams.ts'
import { type FakeWorker, startFakeWorker } from '../fake-worker/index.ts'
import { type Cluster, type ClusterOptions, eventsOf, startCluster } from './cluster.ts'
import { RawClient, postBytes } from './raw-socket.ts'
import { type TicketWatch, eventually, gate, metric, stopCluster, watchTickets } from './watching.ts'

let cluster: Cluster
let tickets: TicketWatch
const clients: RawClient[] = []
afterEach(async () => {
  for (const client of clients.splice(0)) client.leave()
  await stopCluster(cluster)
})

async function start(options: ClusterOptions = {}): Promise<void> {
  cluster = await startCluster({ prefill: 1, decode: 1, ...options })
  tickets = watchTickets(cluster)
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

  it('a worker that is drained takes no more and ends what it has', async () => {
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

  it('a worker that is removed ends what it has and is forgotten', async () => {
    const { registry, ended } = await heldStreams()
    const [first] = cluster.decodes
    registry.remove(idOf(first!))
    expect(stateOf(first!)).toMatchObject({ leaving: true, inflight: 1 })
    for (let n = 0; n < 4; n++) await served()
    await ended()
    expect(stateOf(first!)).toBeUndefined()
    expect(first!.counters.decode).toBe(1)
  })

  it('a worker that is removed and added again has its load back', async () => {
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

  it('a worker that is added takes requests as soon as it is well', async () => {
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

describe('a gateway that is stopped', () => {
  it('lets streams end, and refuses what comes meanwhile', async () => {
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

  it('tells streams that outlast the grace, and requests that have not begun, and ends', async () => {
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
    await Promise.all(cluster.decodes.map(decode => decode.waitForActive(1)))
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

  it('does not wait for a request to a pool that is closed', async () => {
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

describe('a gateway that is full', () => {
  const LIMITS = { maxConcurrentRequests: 1, queueSize: 1 }

  it('is not filled by clients that do not send their bodies', async () => {
    await start({ config: { limits: { maxConcurrentRequests: 1, queueSize: 0 } } })
    // The gateway says that it waits for them.
    const head =
      'POST /v1/completions HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 100\r\n\r\n'
    await Promise.all(
      [connect(head), connect(head)].map(client => client.until(text => text.includes('100 Continue'))),
    )
    expect((await ask()).status).toBe(200)
  })

  it('queues, and refuses what is too much with a time to come back', async () => {
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

  it('lets nobody wait longer than is allowed, nor than the client allows', async () => {
    await start({ config: { limits: { ...LIMITS, queueSize: 8, queueTimeoutMs: 300 } } })
    const held = gate()
    cluster.decodes[0]!.failNext({ kind: 'hang', after: 'request', until: held.opened })
    const first = ask()
    await cluster.decodes[0]!.waitForActive(1)
    const [late, sooner] = await Promise.all([ask(), ask({}, { 'x-request-timeout-ms': '100' })])
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
  ] as const)('that passes while %s has not begun is told as such', async (leg, fault) => {
    await start()
    const worker = (leg === 'prefill' ? cluster.prefills : cluster.decodes)[0]!
    worker.fail(fault)
    const response = await ask({}, { 'x-request-timeout-ms': '300' })
    expect([response.status, errorOf(await response.text()).code]).toEqual([504, 'ELDR_DEADLINE'])
    await worker.waitForAborts(1)
    await tickets.settled()
    expect(tickets.dispatches.at(-1)!.ends).toEqual(['ignored'])
    expect(await metric(cluster, 'eldr_requests_total', { outcome: 'timeout' })).toBe(1)
  })

  it('that passes amid a stream is its last event', async () => {
    await start()
    cluster.decodes[0]!.fail({ kind: 'hang', after: 'tokens', tokens: 2 })
    const events = await eventsOf(await ask({}, { 'x-request-timeout-ms': '300' }))
    expect([events.length, errorOf(events.at(-1)).code]).toEqual([3, 'ELDR_DEADLINE'])
    await tickets.settled()
  })

  it('ends retries too', async () => {
    await start({ decode: 2, config: { retries: { backoffMs: 60_000 } } })
    for (const decode of cluster.decodes) decode.fail({ kind: 'status', status: 500 })
    const response = await ask({}, { 'x-request-timeout-ms': '300' })
    expect([response.status, errorOf(await response.text()).code]).toEqual([504, 'ELDR_DEADLINE'])
    await tickets.settled()
    expect(sum(cluster.decodes, 'decode')).toBe(1)
  })

  it('that is longer than a request may take, or is none, changes nothing', async () => {
    await start({ config: { timeouts: { requestMs: 300 } } })
    cluster.decodes[0]!.fail({ kind: 'hang', after: 'request' })
    for (const value of ['60000', 'soon', '-1']) {
      expect(errorOf(await (await ask({}, { 'x-request-timeout-ms': value })).text()).code).toBe(
        'ELDR_REQUEST_TIMEOUT',
      )
    }
    await tickets.settled()
  })
})

describe('bodies that never end', () => {
  it('take so much memory together, and others are told to come back', async () => {
    await start()
    const part = Buffer.alloc(31 << 20, ' ')
    const head = `POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: ${32 << 20}\r\n\r\n`
    const held = Array.from({ length: 9 }, () => connect(head))
    for (const { socket } of held) socket.write(part)
    const refused = await Promise.race(held.map(client => client.answer()))
    expect(refused).toMatchObject({ status: 429, headers: { 'retry-after': '1' } })
    expect(refused.body).toContain('Too many bodies')
    for (const client of clients.splice(0)) client.leave()
    await served()
  }, 60_000)
})
