/** Data-parallel ranks behind a gateway of several processes: relays send them, the owner counts them. */
import { afterEach, describe, expect, it } from 'vitest'
import type { ReceivedRequest } from '../fake-worker/index.ts'
import { polled } from '../worker/processes.ts'
import { eventsOf } from './cluster.ts'
import { type ProcessCluster, startProcessCluster } from './process-cluster.ts'

let cluster: ProcessCluster
afterEach(() => cluster.stop())

interface Shown {
  readonly id: string
  readonly role: string
  readonly dpRank?: number
  readonly state: string
  readonly breaker: string
  readonly inflight: number
}

async function start(config: object = {}): Promise<void> {
  cluster = await startProcessCluster({
    prefill: 1,
    decode: 1,
    prefillOptions: { ranks: 2 },
    decodeOptions: { ranks: 3 },
    config: {
      routing: { policy: 'round_robin', prefillPolicy: 'round_robin' },
      workers: { prefillRanks: 2, decodeRanks: 3 },
      ...config,
    },
  })
  await polled(
    () => cluster.get<{ prefill: number; decode: number }>('/ready'),
    ({ prefill, decode }) => prefill === 2 && decode === 3,
    'all ranks',
  )
}
const decodes = async () =>
  (await cluster.get<{ workers: Shown[] }>('/eldr/workers')).workers.filter(({ role }) => role === 'decode')
const ask = (body: object = {}) =>
  cluster.post(
    '/v1/completions',
    { prompt: 'a b c d', max_tokens: 4, ...body },
    { headers: { connection: 'close', 'x-data-parallel-rank': '9' } },
  )
async function answered(count: number): Promise<void> {
  for (let n = 0; n < count; n++) expect((await ask()).status).toBe(200)
}

describe('a gateway of several processes', () => {
  it('sends every request to the chosen rank, from any relay', async () => {
    await start()
    const [prefill, decode] = [cluster.prefills[0]!, cluster.decodes[0]!]
    await answered(12)
    expect(prefill.ranks.map(counts => counts.prefill)).toEqual([6, 6])
    expect(decode.ranks.map(counts => counts.decode)).toEqual([4, 4, 4])
    expect((await decodes()).map(({ dpRank }) => dpRank)).toEqual([0, 1, 2])
    await cluster.idle()
  })

  it('opens the breaker of the failing rank and of no other', async () => {
    await start({ breaker: { consecutiveFailures: 2 }, retries: { max: 3, budgetShare: 1, backoffMs: 1 } })
    const match = ({ isGeneration, dpRank }: ReceivedRequest) => isGeneration && dpRank === 1
    cluster.decodes[0]!.fail({ kind: 'status', status: 503 }, { match })
    await answered(9)
    expect((await decodes()).map(({ breaker }) => breaker)).toEqual(['closed', 'open', 'closed'])
    await cluster.idle()
  })

  it('knows after its owner was killed which rank has which stream, and which is drained', async () => {
    await start({ routing: { policy: 'jsq' } })
    const decode = cluster.decodes[0]!
    let release = () => {}
    const until = new Promise<void>(resolve => (release = resolve))
    decode.fail({ kind: 'hang', after: 'tokens', tokens: 2, until })
    const responses = await Promise.all(Array.from({ length: 4 }, () => ask({ stream: true, max_tokens: 6 })))
    decode.clearFaults()
    const { id } = (await decodes())[2]!
    expect((await cluster.post(`/eldr/workers/${id}/drain`, {})).status).toBe(200)
    const pid = cluster.pidOf('owner')
    process.kill(pid, 'SIGKILL')
    await cluster.replaced('owner', pid)
    await polled(cluster.inflight, count => count === 4, 'tickets of the new owner')
    const after = await decodes()
    expect(after.map(({ inflight }) => inflight)).toEqual(decode.ranks.map(({ active }) => active))
    expect(after[2]).toMatchObject({ id, dpRank: 2, state: 'draining' })
    const before = decode.ranks.map(counts => counts.decode)
    await answered(3)
    expect(decode.ranks[2]!.decode).toBe(before[2])
    expect(decode.ranks.reduce((sum, counts) => sum + counts.decode, 0)).toBe(7)
    release()
    for (const response of responses) expect((await eventsOf(response)).at(-1)).toBe('[DONE]')
    await cluster.idle()
  })
})
