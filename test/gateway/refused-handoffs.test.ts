/**
 * A decode worker that refuses before its engine has the hand-off may not free it. It is never used again,
 * because vLLM may have freed the blocks, and it is released together with the retry, because vLLM may have
 * kept them.
 */
import { afterEach, describe, expect, it } from 'vitest'
import type { Fault } from '../fake-worker/index.ts'
import { type Cluster, eventsOf, startCluster } from './cluster.ts'
import { eventually, metric, type TicketWatch, watchTickets } from './watching.ts'

let cluster: Cluster
let tickets: TicketWatch
afterEach(() => cluster.stop())

/** The first decode request gets the fault. */
async function start(decode: number, fault: Fault, retries = 2): Promise<void> {
  cluster = await startCluster({
    prefill: 1,
    decode,
    config: { routing: { policy: 'round_robin' }, retries: { max: retries } },
  })
  tickets = watchTickets(cluster)
  let struck = false
  for (const worker of cluster.decodes)
    worker.fail(fault, { match: ({ isGeneration }) => isGeneration && !struck && (struck = true) })
}

const ask = () => cluster.post('/v1/completions', { prompt: 'a b c', max_tokens: 8, stream: true })
const released = () => metric(cluster, 'eldr_handoffs_released_total')
const releases = (count: number) => eventually(async () => (await released()) === count, 'a release')
/** How often each hand-off was read, in the order of the prefills. */
const reads = () => [...cluster.prefills[0]!.handoffs.values()]
const decodes = () => cluster.decodes.map(({ counters }) => counters.decode).toSorted()

describe.each([429, 503])('a hand-off that a decode worker refuses with %i', status => {
  it('is released, and the retry has its own', async () => {
    await start(2, { kind: 'status', status })
    expect(await eventsOf(await ask())).toHaveLength(9)
    await releases(1)
    await tickets.settled()
    expect(reads()).toEqual([1, 1])
    // The worker that refused gets neither the release nor the retry.
    expect(decodes()).toEqual([1, 2])
  })

  it('stays until its lease ends if there is no retry', async () => {
    await start(2, { kind: 'status', status }, 0)
    expect((await ask()).status).toBe(status === 429 ? 429 : 502)
    await tickets.settled()
    expect([reads(), decodes(), await released()]).toEqual([[0], [0, 1], 0])
  })

  it('stays until its lease ends if there is no other decode worker', async () => {
    await start(1, { kind: 'status', status })
    expect((await ask()).status).toBe(status === 429 ? 429 : 502)
    await tickets.settled()
    expect([reads(), decodes(), await released()]).toEqual([[0], [1], 0])
  })
})

describe('a hand-off that a decode worker may have read', () => {
  it.each<[string, Fault]>([
    ['responds with 500', { kind: 'status', status: 500 }],
    ['responds with 502', { kind: 'status', status: 502 }],
    ['resets its connection', { kind: 'reset', after: 'request' }],
  ])('is neither used again nor released if the worker %s', async (_, fault) => {
    await start(2, fault)
    expect(await eventsOf(await ask())).toHaveLength(9)
    await tickets.settled()
    expect([reads(), decodes(), await released()]).toEqual([[0, 1], [1, 1], 0])
  })
})
