/**
 * Load as decisions see it: requests that were dispatched and have not ended. Each test covers a defect known
 * from other routers. Clients that leave are in clients.test.ts, broken streams in fault-matrix.test.ts.
 */
import { afterEach, describe, expect, it } from 'vitest'
import { createRandom } from '../../src/math/random.ts'
import type { Fault, FakeWorker } from '../fake-worker/index.ts'
import { type Cluster, type ClusterOptions, eventsOf, startCluster } from './cluster.ts'
import { ManualClock } from '../manual-clock.ts'
import { RawClient, postBytes } from './raw-socket.ts'
import {
  type TicketWatch,
  eventually,
  unhandledRejections,
  gate,
  stopCluster,
  watchTickets,
} from './watching.ts'

let cluster: Cluster
let tickets: TicketWatch
let clock: ManualClock | undefined
afterEach(async () => {
  clock?.uninstall()
  clock = undefined
  await stopCluster(cluster)
})

const BY_LOAD = { policy: 'jsq', prefillPolicy: 'least_loaded' }
async function start(options: ClusterOptions = {}, routing: object = BY_LOAD): Promise<void> {
  cluster = await startCluster({ ...options, config: { ...options.config, routing: { ...routing } } })
  tickets = watchTickets(cluster)
}

const PROMPT = 'Once upon a time'
const ask = (more: object = {}) =>
  cluster.post('/v1/completions', { prompt: PROMPT, max_tokens: 4, stream: true, ...more })
/** Requests in flight or tokens of each worker of a role, by index. */
function loads(role: 'prefill' | 'decode', of: 'inflight' | 'tokens' = 'inflight'): number[] {
  const views = cluster.gateway.context.registry
    .views(performance.now())
    .filter(({ spec }) => spec.role === role)
  return views.toSorted((a, b) => a.index - b.index).map(view => view[of])
}
const counts = (workers: readonly FakeWorker[], leg: 'prefill' | 'decode') =>
  workers.map(({ counters }) => counters[leg])
const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0)

describe.each([true, false])('load (stream: %s)', stream => {
  it('counts from the decision on, before the worker responds, and later decisions see it', async () => {
    await start()
    const { opened, open } = gate()
    for (const decode of cluster.decodes) decode.fail({ kind: 'hang', after: 'request', until: opened })
    const answers = Array.from({ length: 8 }, () => ask({ stream }))
    await eventually(() => sum(loads('decode')) === 8)
    expect(loads('decode')).toEqual([4, 4])
    const { router } = cluster.gateway.context
    const seen = router.decisions().toReversed()
    expect(seen.map(({ candidates }) => sum(candidates.map(({ inflight }) => inflight)))).toEqual([
      0, 1, 2, 3, 4, 5, 6, 7,
    ])
    // Prefill has ended, however long decode takes.
    expect(loads('prefill')).toEqual([0, 0])
    open()
    for (const answer of answers) expect((await answer).status).toBe(200)
    await Promise.all(answers.map(async answer => (await answer).text()))
    await tickets.settled()
    expect(counts(cluster.decodes, 'decode')).toEqual([4, 4])
  })

  it('of prefill counts only until the prefill response', async () => {
    await start()
    const { opened, open } = gate()
    for (const prefill of cluster.prefills) prefill.fail({ kind: 'hang', after: 'request', until: opened })
    const answers = Array.from({ length: 6 }, () => ask({ stream }))
    await eventually(() => sum(loads('prefill')) === 6)
    expect([loads('prefill'), loads('decode')]).toEqual([
      [3, 3],
      [0, 0],
    ])
    open()
    await Promise.all(answers.map(async answer => (await answer).text()))
    await tickets.settled()
  })

  it('lasts until the end of the response body, not until its headers', async () => {
    await start({ decode: 1 })
    const { opened, open } = gate()
    cluster.decodes[0]!.fail({
      kind: 'hang',
      ...(stream ? { after: 'tokens', tokens: 2 } : { after: 'headers' }),
      until: opened,
    })
    const answer = ask({ stream })
    // The headers and two tokens of a stream have arrived.
    if (stream) await answer
    await cluster.decodes[0]!.waitForActive(1)
    await eventually(() => loads('decode')[0] === 1)
    await fetch(`${cluster.url}/health`)
    expect(loads('decode')).toEqual([1])
    open()
    await (await answer).text()
    await tickets.settled()
  })

  it('counts the tokens of the prompt on one leg at a time', async () => {
    await start({ prefill: 1, decode: 1 })
    const [reading, generating] = [gate(), gate()]
    cluster.prefills[0]!.fail({ kind: 'hang', after: 'request', until: reading.opened })
    cluster.decodes[0]!.fail({ kind: 'hang', after: 'request', until: generating.opened })
    const answer = ask({ stream, prompt: [1, 2, 3, 4, 5, 6, 7], max_tokens: 1_000 })
    await eventually(() => loads('prefill')[0] === 1)
    expect([loads('prefill', 'tokens'), loads('decode', 'tokens')]).toEqual([[7], [0]])
    reading.open()
    await eventually(() => loads('decode')[0] === 1)
    expect([loads('prefill', 'tokens'), loads('decode', 'tokens')]).toEqual([[0], [7]])
    generating.open()
    await (await answer).text()
    await tickets.settled()
    expect([loads('prefill', 'tokens'), loads('decode', 'tokens')]).toEqual([[0], [0]])
  })
})

describe('load', () => {
  it('is counted by the gateway and not polled from workers', async () => {
    await start({ config: { health: { intervalMs: 20 } } })
    const [decode] = cluster.decodes
    await decode!.waitFor(({ other }) => other > 10)
    await (await ask()).text()
    const asked = new Set(
      [...cluster.prefills, ...cluster.decodes].flatMap(({ requests }) => requests.map(({ path }) => path)),
    )
    for (const path of ['/load', '/get_load', '/v1/loads', '/get_server_info'])
      expect(asked).not.toContain(path)
  })

  it('is spread evenly when many requests come at once', async () => {
    await start({ decode: 4 })
    const { opened, open } = gate()
    for (const decode of cluster.decodes)
      decode.fail({ kind: 'hang', after: 'tokens', tokens: 1, until: opened })
    const answers = await Promise.all(Array.from({ length: 40 }, () => ask()))
    expect(counts(cluster.decodes, 'decode')).toEqual([10, 10, 10, 10])
    open()
    await Promise.all(answers.map(answer => answer.text()))
    await tickets.settled()
  })

  it('stays with the worker when it is registered again', async () => {
    await start({ decode: 3 })
    const { opened, open } = gate()
    for (const decode of cluster.decodes)
      decode.fail({ kind: 'hang', after: 'tokens', tokens: 1, until: opened })
    const streams: Response[] = []
    const { registry } = cluster.gateway.context
    for (let n = 0; n < 6; n++) {
      streams.push(await ask())
      for (const { spec } of registry.views(0)) expect(registry.add(spec)).toBe('unchanged')
    }
    expect(loads('decode')).toEqual([2, 2, 2])
    open()
    for (const stream of streams) expect((await eventsOf(stream)).at(-1)).toBe('[DONE]')
    await tickets.settled()
  })

  it.each(['random', 'round_robin', 'jsq', 'power_of_two', 'union'])(
    'is given to the configured policy: %s',
    async policy => {
      await start({}, { policy })
      for (let n = 0; n < 2; n++) await (await ask()).text()
      expect(cluster.gateway.context.router.decisions()[0]!.policy).toBe(policy)
      expect(cluster.gateway.context.router.decisions()).toHaveLength(2)
    },
  )

  it.each(['jsq', 'power_of_two', 'union'])(
    'that is equal everywhere is not always sent to the same worker: %s',
    async policy => {
      await start({ decode: 3 }, { policy, prefillPolicy: 'least_loaded' })
      for (let n = 0; n < 60; n++) await (await ask({ max_tokens: 2, stream: false })).text()
      // The probability of fewer than 5 of 60 on one of three workers is below one in a million.
      for (const count of counts(cluster.decodes, 'decode')) expect(count).toBeGreaterThanOrEqual(5)
      for (const count of counts(cluster.prefills, 'prefill')) expect(count).toBeGreaterThanOrEqual(5)
    },
  )
})

describe('a failed leg', () => {
  it('of prefill sends nothing to a decode worker', async () => {
    await start()
    for (const prefill of cluster.prefills) prefill.fail({ kind: 'reset', after: 'request' })
    expect((await ask()).status).toBe(502)
    await tickets.settled()
    expect(sum(counts(cluster.decodes, 'decode'))).toBe(0)
  })

  it('of decode leaves no load on a prefill worker', async () => {
    clock = ManualClock.install()
    await start({ decode: 1, config: { timeouts: { firstTokenMs: 300 } } })
    cluster.decodes[0]!.fail({ kind: 'hang', after: 'request' })
    const answer = ask()
    await cluster.decodes[0]!.waitFor(({ held }) => held === 1)
    expect(loads('prefill')).toEqual([0, 0])
    expect((await clock.during(answer, 100)).status).toBe(504)
    await tickets.settled()
  })
})

describe('connections that a worker closed while they were idle', () => {
  it('fail no request', async () => {
    await start({ prefill: 1, decode: 1 })
    for (let n = 0; n < 10; n++) {
      expect((await ask({ stream: n % 2 === 0 })).status).toBe(200)
      await cluster.idle()
      for (const worker of [...cluster.prefills, ...cluster.decodes]) {
        await worker.refuse()
        await worker.accept()
      }
    }
    await tickets.settled()
  })
})

describe('many clients that meet every fault and leave at any time', () => {
  it('leave no load behind, and every ticket ends once', async () => {
    const random = createRandom(7)
    clock = ManualClock.install()
    await start({
      decodeOptions: { gapMs: 1 },
      config: {
        timeouts: { prefillMs: 1_000, firstTokenMs: 1_000, betweenTokensMs: 1_000, requestMs: 6_000 },
        breaker: { consecutiveFailures: 1000, windowRequests: 100_000 },
        retries: { budgetShare: 1 },
        limits: { maxConcurrentRequests: 24, queueSize: 40 },
      },
    })
    const faults: Fault[] = [
      { kind: 'reset', after: 'request' },
      { kind: 'reset', after: 'tokens', tokens: 2 },
      { kind: 'hang', after: 'headers' },
      { kind: 'status', status: 500 },
      { kind: 'status', status: 400 },
      { kind: 'truncate' },
      { kind: 'close' },
      { kind: 'error_event' },
      { kind: 'garbage' },
    ]
    for (const worker of [...cluster.prefills, ...cluster.decodes]) {
      for (const fault of faults)
        worker.fail(fault, { match: ({ isGeneration }) => isGeneration && random.uniform() < 0.04 })
    }
    const crowd = Array.from({ length: 80 }, async () => {
      const client = new RawClient(cluster.url)
      const more = { stream: random.uniform() < 0.7, max_tokens: 10, n: random.uniform() < 0.2 ? 3 : 1 }
      client.send(postBytes(JSON.stringify({ prompt: PROMPT, ...more }), 'Connection: close\r\n'))
      const enough = random.uniform() < 0.4 ? Math.floor(random.uniform() * 2_000) : Infinity
      await client.until(text => text.length >= enough || client.ended).catch(() => {})
      client.leave()
    })
    await clock.during(Promise.all(crowd))
    await tickets.settled()
    expect(unhandledRejections()).toEqual([])
    expect(tickets.dispatches.length).toBeGreaterThan(80)
    expect([
      ...loads('prefill'),
      ...loads('decode'),
      ...loads('prefill', 'tokens'),
      ...loads('decode', 'tokens'),
    ]).toEqual(Array(8).fill(0))
  })
})
