/** Outages, leases, restarts, breakers and hung workers. */
import { afterEach, describe, expect, it } from 'vitest'
import type { FakeWorker, ReceivedRequest } from '../fake-worker/index.ts'
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

/**
 * A cluster whose timeouts pass only when the test moves the clock; health checks are rare unless configured.
 */
async function startWithClock({ config, ...options }: ClusterOptions = {}): Promise<ManualClock> {
  clock = ManualClock.install()
  await start({ ...options, config: { health: { intervalMs: 600_000, timeoutMs: 600_000 }, ...config } })
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

describe('in an outage', () => {
  it('retries are limited to a share of the requests', async () => {
    const config = {
      retries: { max: 10, budgetShare: 0.2 },
      breaker: { consecutiveFailures: 1000, windowRequests: 100_000 },
    }
    await start({ prefill: 2, decode: 2, config })
    for (const decode of cluster.decodes) decode.fail({ kind: 'status', status: 503 })
    for (let n = 0; n < 60; n++) expect((await ask()).status).toBe(502)
    await tickets.settled()
    const retries = await metric(cluster, 'eldr_retries_total')
    // A fifth of the requests, plus the ten that the budget starts with.
    expect(retries).toBeGreaterThan(0)
    expect(retries).toBeLessThanOrEqual(10 + 0.2 * 60)
    // With each retry, at most one other worker is asked to release the refused hand-off.
    const tries = sum(cluster.decodes, 'decode')
    expect(tries).toBeGreaterThanOrEqual(60 + retries)
    expect(tries).toBeLessThanOrEqual(60 + 2 * retries)
  })

  it('of all decode workers, no prompt is prefilled', async () => {
    await start()
    await cluster.decodes[0]!.refuse()
    cluster.gateway.context.registry.drain(idOf(cluster.decodes[0]!))
    const response = await ask()
    expect([
      response.status,
      response.headers.get('retry-after'),
      errorOf(await response.text()),
    ]).toMatchObject([503, '1', { code: 'ELDR_NO_DECODE_WORKER' }])
    expect(cluster.prefills[0]!.counters.prefill).toBe(0)
  })

  it('of all prefill workers, the client gets ELDR_NO_PREFILL_WORKER', async () => {
    await start()
    cluster.gateway.context.registry.drain(idOf(cluster.prefills[0]!))
    expect(errorOf(await (await ask()).text())).toMatchObject({ code: 'ELDR_NO_PREFILL_WORKER' })
  })
})

describe('a hand-off', () => {
  const LEASE = { lease: { durationMs: 200, usableShare: 0.5 } }

  /**
   * Delays the next prefill response: its headers come at once, the rest after the usable share of the lease.
   */
  function delayNextHandoff(): () => Promise<void> {
    const prefill = cluster.prefills[0]!
    const { upstreams } = cluster.gateway.context
    const receivedBytes = () => upstreams.trafficOf(prefill.url)!.receivedBytes
    const { opened, open } = gate()
    let before = Infinity
    const match = ({ isGeneration }: ReceivedRequest) => {
      if (isGeneration) before = receivedBytes()
      return isGeneration
    }
    prefill.failNext({ kind: 'hang', after: 'headers', until: opened }, { match })
    return async () => {
      await eventually(() => receivedBytes() > before, 'the headers to be read')
      clock!.advance(101)
      open()
    }
  }

  it('that has used up its share of the lease is not used, and the prompt is prefilled again', async () => {
    const clock = await startWithClock({ config: LEASE })
    const prefill = cluster.prefills[0]!
    const delay = delayNextHandoff()
    const response = served()
    await delay()
    // Only the wait before the retry passes; after it the clock stands still.
    await clock.during(prefill.waitFor(counters => counters.prefill === 2))
    await response
    await tickets.settled()
    expect([...prefill.handoffs.values()]).toEqual([0, 1])
    expect(await metric(cluster, 'eldr_leases_missed_total')).toBe(1)
    expect(await metric(cluster, 'eldr_retries_total', { leg: 'prefill', cause: 'lease' })).toBe(1)
  })

  it('that is too old every time fails the request', async () => {
    const clock = await startWithClock({ config: LEASE })
    const prefill = cluster.prefills[0]!
    let delay = delayNextHandoff()
    const response = ask()
    for (let attempt = 2; attempt <= 3; attempt++) {
      const now = delay
      delay = delayNextHandoff()
      await now()
      await clock.during(prefill.waitFor(counters => counters.prefill === attempt))
    }
    await delay()
    const { status, text } = await response.then(async got => ({
      status: got.status,
      text: await got.text(),
    }))
    expect([status, errorOf(text).code]).toEqual([502, 'ELDR_HANDOFF_BAD'])
    await tickets.settled()
    expect([prefill.counters.prefill, cluster.decodes[0]!.counters.decode]).toEqual([3, 0])
  })

  it('of a prefill worker that restarted between the legs is made again, even with one decode worker', async () => {
    await start()
    const { opened, open } = gate()
    cluster.decodes[0]!.failNext({ kind: 'hang', after: 'request', until: opened })
    const answer = ask()
    await cluster.decodes[0]!.waitForActive(1)
    await cluster.prefills[0]!.restart()
    open()
    expect((await eventsOf(await answer)).at(-1)).toBe('[DONE]')
    await tickets.settled()
    expect(cluster.decodes[0]!.counters).toMatchObject({ handoffsUnknown: 1, handoffsRead: 1, decode: 2 })
    expect(await metric(cluster, 'eldr_worker_restarts_total', { worker: idOf(cluster.prefills[0]!) })).toBe(
      1,
    )
  })

  it('of a prefill worker that restarted goes to another decode worker if there is one', async () => {
    await start({ decode: 2 })
    const { opened, open } = gate()
    for (const decode of cluster.decodes) decode.failNext({ kind: 'hang', after: 'request', until: opened })
    const answer = ask()
    await eventually(() => sum(cluster.decodes, 'decode') === 1)
    for (const decode of cluster.decodes) decode.clearFaults()
    await cluster.prefills[0]!.restart()
    open()
    expect((await eventsOf(await answer)).at(-1)).toBe('[DONE]')
    await tickets.settled()
    expect(cluster.decodes.map(({ counters }) => counters.decode)).toEqual([1, 1])
  })
})

describe('a restart of a decode worker', () => {
  it('is detected because its counters start from 0', async () => {
    await start({ config: { health: { intervalMs: 30 } } })
    const decode = cluster.decodes[0]!
    await served()
    const { other } = decode.counters
    await decode.waitFor(counters => counters.other > other + 4)
    await decode.restart()
    const restarts = () => metric(cluster, 'eldr_worker_restarts_total', { worker: idOf(decode) })
    await eventually(async () => (await restarts()) > 0)
    expect(await restarts()).toBe(1)
  })
})

describe('a breaker', () => {
  const BREAKER = { consecutiveFailures: 3, openMs: 60_000, windowRequests: 1_000 }
  const failStreams = async (count: number) => {
    for (let n = 0; n < count; n++) expect(errorOf((await eventsOf(await ask())).at(-1))).toBeDefined()
  }

  it('opens after consecutive failures, lets one probe through, and closes if the probe succeeds', async () => {
    const clock = await startWithClock({
      decode: 2,
      config: { breaker: BREAKER, routing: { policy: 'round_robin' } },
    })
    const [bad, good] = cluster.decodes as [FakeWorker, FakeWorker]
    bad.fail({ kind: 'status', status: 500 })
    for (let n = 0; n < 8; n++) await clock.during(served())
    expect(stateOf(bad)).toMatchObject({ state: 'open' })
    expect(bad.counters.decode).toBe(3)
    expect(await metric(cluster, 'eldr_breaker_transitions_total', { worker: idOf(bad), to: 'open' })).toBe(1)
    bad.clearFaults()
    const { opened, open } = gate()
    bad.failNext({ kind: 'hang', after: 'tokens', tokens: 1, until: opened })
    clock.advance(60_000)
    expect(stateOf(bad)!.breaker).toBe('half_open')
    // Until the probe has ended, at the end of its stream, the worker gets no other request.
    const streams = [await ask(), await ask(), await ask(), await ask()]
    await bad.waitForActive(1)
    expect([bad.counters.decode, stateOf(bad)!.breaker]).toEqual([4, 'half_open'])
    open()
    for (const stream of streams) expect((await eventsOf(stream)).at(-1)).toBe('[DONE]')
    await tickets.settled()
    expect(stateOf(bad)).toMatchObject({ state: 'ready', breaker: 'closed' })
    await served()
    await served()
    expect(bad.counters.decode).toBe(5)
    expect(good.counters.decode).toBeGreaterThan(8)
  })

  it('opens again if the probe fails', async () => {
    const clock = await startWithClock({ config: { breaker: BREAKER } })
    cluster.decodes[0]!.fail({ kind: 'reset', after: 'tokens', tokens: 1 })
    await failStreams(3)
    clock.advance(60_000)
    expect(stateOf(cluster.decodes[0]!)!.breaker).toBe('half_open')
    await failStreams(1)
    expect(stateOf(cluster.decodes[0]!)!.state).toBe('open')
    expect((await ask()).status).toBe(503)
  })

  it('counts a stream when it ends, not when it starts', async () => {
    await start({ config: { breaker: BREAKER } })
    const decode = cluster.decodes[0]!
    const { opened, open } = gate()
    decode.fail({ kind: 'hang', after: 'tokens', tokens: 1, until: opened }, { times: 1 })
    decode.fail({ kind: 'close', tokens: 1 })
    const slow = await ask()
    await failStreams(2)
    expect(stateOf(decode)!.breaker).toBe('closed')
    // If the headers of the slow stream had counted as a success, two more failures would be needed.
    await failStreams(1)
    expect(stateOf(decode)!.breaker).toBe('open')
    open()
    expect((await eventsOf(slow)).at(-1)).toBe('[DONE]')
    await tickets.settled()
  })

  it('does not blame the worker for a bad request, a client that leaves, or a lack of capacity', async () => {
    await start({ config: { breaker: BREAKER, retries: { max: 0 } } })
    const decode = cluster.decodes[0]!
    for (const status of [400, 404, 422, 429]) {
      // Releases of the hand-offs that were not read are requests of one token.
      decode.fail(
        { kind: 'status', status },
        { times: 4, match: ({ isGeneration, json }) => isGeneration && json.max_tokens !== 1 },
      )
      for (let n = 0; n < 4; n++) expect((await ask()).status).toBe(status)
    }
    decode.fail({ kind: 'hang', after: 'tokens', tokens: 1 }, { times: 4 })
    for (let n = 1; n <= 4; n++) {
      const client = connect(postBytes(JSON.stringify(BODY)))
      await client.until(text => text.includes('"text"'))
      client.leave()
      await decode.waitForAborts(n)
    }
    await tickets.settled()
    expect(stateOf(decode)).toMatchObject({ state: 'ready', breaker: 'closed' })
  })

  it('of a decode worker does not open for failures of prefill', async () => {
    const PREFILL_MS = 200
    const clock = await startWithClock({ config: { breaker: BREAKER, timeouts: { prefillMs: PREFILL_MS } } })
    const prefill = cluster.prefills[0]!
    for (const kind of ['status', 'reset', 'hang'] as const) {
      expect(stateOf(prefill)!.state).toBe('ready')
      prefill.fail(kind === 'status' ? { kind, status: 500 } : { kind, after: 'request' }, { times: 3 })
      for (let n = 0; n < 3; n++) {
        const { held } = prefill.counters
        const response = ask()
        if (kind === 'hang') {
          await prefill.waitFor(counters => counters.held > held)
          clock.advance(PREFILL_MS)
        }
        await (await response).text()
      }
      expect(stateOf(prefill)!.breaker).not.toBe('closed')
      prefill.clearFaults()
      expect(stateOf(cluster.decodes[0]!)!.breaker).toBe('closed')
      clock.advance(60_000)
      expect(stateOf(prefill)!.breaker).toBe('half_open')
      await eventually(() => stateOf(prefill)!.state !== 'unhealthy')
      await served()
    }
    await tickets.settled()
  })
})

describe('a worker that hangs', () => {
  /** Long enough that no healthy worker misses it while the clock moves in steps of 50 ms. */
  const TIMEOUT_MS = 3_000
  const HEALTH = { intervalMs: 1_000, timeoutMs: TIMEOUT_MS, failures: 2, successes: 1 }

  it.each([
    ['decode', false],
    ['decode', true],
    ['prefill', false],
  ] as const)(
    'and fails its health checks loses the requests that wait for it: %s, stream: %s',
    async (leg, stream) => {
      const config = {
        health: HEALTH,
        routing: { policy: 'round_robin', prefillPolicy: 'round_robin' },
      }
      const clock = await startWithClock({ prefill: 2, decode: 2, config })
      const hung = (leg === 'decode' ? cluster.decodes : cluster.prefills)[0]!
      hung.fail({ kind: 'hang', after: 'request' }, { match: () => true })
      // One of the two goes to the worker that hangs and would wait for minutes.
      const answers = await clock.during(Promise.all([1, 2].map(() => ask({ stream }))), 50)
      expect(answers.map(({ status }) => status)).toEqual([200, 200])
      await Promise.all(answers.map(answer => answer.text()))
      await tickets.settled()
      expect(await metric(cluster, 'eldr_leg_failures_total', { leg, kind: 'timeout' })).toBe(1)
    },
  )

  it('on everything leaves rotation by its health check, and comes back', async () => {
    const clock = await startWithClock({
      decode: 2,
      config: { health: HEALTH, timeouts: { firstTokenMs: TIMEOUT_MS } },
    })
    const [hung, healthy] = cluster.decodes as [FakeWorker, FakeWorker]
    hung.fail({ kind: 'hang', after: 'request' }, { match: () => true })
    for (let n = 0; n < 4; n++) await clock.during(served(), 50)
    await clock.during(
      eventually(() => stateOf(hung)!.state === 'unhealthy'),
      50,
    )
    const [before, other] = [hung.counters.decode, healthy.counters.decode]
    for (let n = 0; n < 6; n++) await served()
    expect([hung.counters.decode, healthy.counters.decode]).toEqual([before, other + 6])
    hung.clearFaults()
    await clock.during(
      eventually(() => stateOf(hung)!.state === 'ready'),
      50,
    )
    await tickets.settled()
  })

  it('and fails its health checks keeps its requests if no other worker can take them', async () => {
    const clock = await startWithClock({ config: { health: HEALTH } })
    const { opened, open } = gate()
    const [decode] = cluster.decodes
    decode!.fail({ kind: 'hang', after: 'request', until: opened }, { match: () => true })
    const answer = ask({ stream: false })
    await clock.during(
      eventually(() => stateOf(decode!)!.state === 'unhealthy'),
      50,
    )
    decode!.clearFaults()
    open()
    expect((await answer).status).toBe(200)
    await tickets.settled()
  })

  it('on generation alone leaves rotation by its breaker', async () => {
    const clock = await startWithClock({
      decode: 2,
      config: {
        breaker: { consecutiveFailures: 2 },
        timeouts: { firstTokenMs: TIMEOUT_MS },
        retries: { budgetShare: 1 },
      },
    })
    const [hung] = cluster.decodes
    hung!.fail({ kind: 'hang', after: 'request' })
    for (let n = 0; stateOf(hung!)!.state === 'ready'; n++) {
      expect(n).toBeLessThan(50)
      await clock.during(served(), 50)
    }
    expect(hung!.counters.decode).toBe(2)
    await tickets.settled()
  })

  it('is not one whose whole response takes long because it has many tokens', async () => {
    const clock = await startWithClock({ config: { timeouts: { firstTokenMs: 200, betweenTokensMs: 200 } } })
    const { opened, open } = gate()
    const [decode] = cluster.decodes
    decode!.failNext({ kind: 'hang', after: 'request', until: opened })
    const response = ask({ stream: false, max_tokens: 10 })
    await decode!.waitFor(({ held }) => held === 1)
    clock.advance(600)
    open()
    expect(await (await response).json()).toMatchObject({ usage: { completion_tokens: 10 } })
    await tickets.settled()
  })

  it('on the only leg of a request for one token is detected as well', async () => {
    const clock = await startWithClock({
      prefill: 2,
      config: { timeouts: { prefillMs: TIMEOUT_MS, firstTokenMs: TIMEOUT_MS } },
    })
    let struck = false
    for (const prefill of cluster.prefills)
      prefill.fail(
        { kind: 'hang', after: 'request' },
        { match: ({ isGeneration }) => isGeneration && !struck && (struck = true) },
      )
    const response = await clock.during(ask({ stream: false, max_tokens: 1 }), 50)
    expect(await response.json()).toMatchObject({ usage: { completion_tokens: 1 } })
    await tickets.settled()
    expect(sum(cluster.prefills, 'prefill') + sum(cluster.prefills, 'decode')).toBe(2)
  })
})
