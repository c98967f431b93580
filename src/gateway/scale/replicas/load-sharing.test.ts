import * as fc from 'fast-check'
import { pino } from 'pino'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { Registry } from '../../../cluster/registry.ts'
import { LoadTracker } from '../../../cluster/tickets.ts'
import { createPredictor } from '../../../policy/predictor.ts'
import { DEFAULT_COST, union } from '../../../policy/union.ts'
import { RateLimitedLog } from '../../observe/log/log.ts'
import { LoadSharing } from './load-sharing.ts'
import { decode, encode } from './messages.ts'

const LIMITS = {
  consecutiveFailures: 5,
  windowMs: 30_000,
  windowRequests: 20,
  windowFailureShare: 0.5,
  openMs: 10_000,
}
const SHAPE = { layers: 1, experts: 6, topK: 2 }
const WORKERS = 2

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }))
afterEach(() => void vi.useRealTimers())

/** Replicas on a bus that may lose messages, each with its own tracker, registry and policy. */
function replicas(count: number, lost: () => boolean) {
  const all = Array.from({ length: count }, (_, n) => {
    const tracker = new LoadTracker()
    const registry = new Registry(tracker, LIMITS)
    for (let w = 0; w < WORKERS; w++) registry.add({ id: `d${w}`, role: 'decode', url: `http://d${w}` }, w)
    const policy = union({
      workers: WORKERS,
      layers: SHAPE.layers,
      predictor: createPredictor(SHAPE),
      cost: DEFAULT_COST,
    })
    const self = { id: `r${n}`, boot: n }
    const sharing: LoadSharing = new LoadSharing({
      settings: { publishMs: 5, unionMs: 20, leaseMs: 300, bytesPerSecond: 1e9 },
      self,
      tracker,
      registry,
      log: pino({ level: 'silent' }),
      rateLimitedLog: new RateLimitedLog(),
      send: message => {
        const bytes = encode(message)
        for (const other of all) {
          const decoded = decode(Buffer.from(bytes))
          if (decoded.kind !== 'ok') throw new Error(decoded.kind)
          if (other.sharing === sharing) sharing.ownMessage(decoded.message)
          else if (!lost() && other.sharing.received(decoded.message) !== undefined)
            throw new Error('ignored')
        }
        return Promise.resolve(bytes.length)
      },
    })
    sharing.policyChanged(policy)
    return { tracker, registry, policy, sharing }
  })
  for (const { sharing } of all) sharing.start()
  return all
}

describe('replicas that share their loads', () => {
  it('agree on loads and sums once no message is lost, and reach zero at the end', async () => {
    const request = fc.record({
      replica: fc.nat(2),
      worker: fc.nat(WORKERS - 1),
      atMs: fc.nat(400),
      forMs: fc.integer({ min: 1, max: 400 }),
      counts: fc.array(fc.nat(9), { minLength: 6, maxLength: 6 }),
    })
    await fc.assert(
      fc.asyncProperty(
        fc.array(request, { maxLength: 25 }),
        fc.double({ min: 0, max: 0.6, noNaN: true }),
        async (requests, loss) => {
          let seed = 1
          let losing = true
          const all = replicas(
            3,
            () => losing && (seed = (seed * 48_271) % 2_147_483_647) / 2_147_483_647 < loss,
          )
          for (const { replica, worker, atMs, forMs, counts } of requests)
            setTimeout(() => {
              const { tracker, policy } = all[replica]!
              const routable = { id: 'r', counts: Uint16Array.from(counts) }
              const ticket = tracker.take(`d${worker}`, 'decode', 10, performance.now())
              policy.dispatched!(routable, worker)
              setTimeout(() => {
                ticket.release()
                policy.released!(routable, worker)
              }, forMs)
            }, atMs)
          await vi.advanceTimersByTimeAsync(200)
          losing = false
          await vi.advanceTimersByTimeAsync(300)
          for (let w = 0; w < WORKERS; w++) {
            const loads = all.map(({ registry }) => registry.views(0)[w]!)
            const own = loads.reduce((sum, { inflight }) => sum + inflight, 0)
            expect(
              loads.every(({ inflight, inflightElsewhere }) => inflightElsewhere >= 0 && inflight >= 0),
            ).toBe(true)
            // At 500 ms a message may be in transit, unless nothing has changed around that time.
            const quiet = requests.every(({ atMs, forMs }) => atMs + forMs < 470 || atMs + forMs > 530)
            for (const { inflight, inflightElsewhere } of loads)
              expect(quiet ? inflight + inflightElsewhere : own).toBe(own)
          }
          await vi.advanceTimersByTimeAsync(1_000)
          for (const { registry, policy, sharing } of all) {
            expect(sharing.others).toBe(2)
            expect(
              registry
                .views(0)
                .every(({ inflight, inflightElsewhere }) => inflight + inflightElsewhere === 0),
            ).toBe(true)
            for (let w = 0; w < WORKERS; w++) expect([...policy.sums!.of(w)]).toEqual([0, 0, 0, 0, 0, 0])
            sharing.stop()
          }
          vi.clearAllTimers()
        },
      ),
      { numRuns: 40 },
    )
  })

  it('count the ranks of a server separately', async () => {
    const [a, b] = replicas(2, () => false)
    for (const { registry } of [a!, b!])
      for (const dpRank of [0, 1])
        registry.add({ id: `e:1@${dpRank}`, role: 'decode', url: 'http://e:1', dpRank })
    a!.registry.setHealth(['e:1@0', 'e:1@1'], true)
    b!.tracker.take('e:1@1', 'decode', 7, 0)
    await vi.advanceTimersByTimeAsync(10)
    expect(a!.registry.candidates('decode', 0).map(({ id, inflight }) => [id, inflight])).toEqual([
      ['e:1@0', 0],
      ['e:1@1', 1],
    ])
  })

  it('add the others’ load to candidates until the lease ends', async () => {
    let silent = false
    const [a, b] = replicas(2, () => silent)
    a!.registry.setHealth('d1', true)
    b!.tracker.take('d1', 'decode', 7, 0)
    await vi.advanceTimersByTimeAsync(10)
    expect(a!.registry.candidates('decode', 0)).toEqual([{ worker: 1, id: 'd1', inflight: 1, tokens: 7 }])
    silent = true
    await vi.advanceTimersByTimeAsync(250)
    expect(a!.registry.views(0)[1]!.inflightElsewhere).toBe(1)
    await vi.advanceTimersByTimeAsync(120)
    expect(a!.registry.views(0)[1]!.inflightElsewhere).toBe(0)
    expect([a!.sharing.others, a!.tracker.inflight('d1', 'decode')]).toEqual([0, 0])
  })

  it('drop a dead replica at the end of its own lease, even if others have longer ones', async () => {
    const [a] = replicas(1, () => false)
    const receive = (id: string, leaseMs: number) =>
      a!.sharing.received({
        kind: 'state',
        from: { id, boot: 1 },
        seq: 1,
        leaseMs,
        loads: [],
        cells: 0,
        whole: true,
        rows: [],
      })
    receive('long', 60_000)
    await vi.advanceTimersByTimeAsync(10)
    receive('short', 300)
    expect(a!.sharing.others).toBe(2)
    await vi.advanceTimersByTimeAsync(310)
    expect(a!.sharing.others).toBe(1)
  })

  it('do not unpack rows that are not needed here, whatever their size', () => {
    const [a] = replicas(1, () => false)
    const long = Buffer.from([0, 0xff, 0xff, 0x3f]) // 2^20 zeros
    const rows = Array.from({ length: 3_000 }, (_, n) => ({ key: n, packed: long }))
    const before = process.memoryUsage().arrayBuffers
    expect(
      a!.sharing.received({
        kind: 'state',
        from: { id: 'x', boot: 1 },
        seq: 1,
        leaseMs: 300,
        loads: [],
        cells: 1 << 20,
        whole: true,
        rows,
      }),
    ).toBe(undefined)
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(50e6)
  })

  it('ask for rows when a new policy needs them', async () => {
    const [a, b] = replicas(2, () => false)
    const { policy } = a!
    a!.sharing.policyChanged({ name: 'jsq', pick: policy.pick })
    b!.tracker.take('d0', 'decode', 1, 0)
    b!.policy.dispatched!({ id: 'r', counts: Uint16Array.from([9, 3, 0, 0, 0, 0]) }, 0)
    await vi.advanceTimersByTimeAsync(60)
    expect(a!.registry.views(0)[0]!.inflightElsewhere).toBe(1)
    expect([...policy.sums!.of(0)]).toEqual([0, 0, 0, 0, 0, 0])
    const again = union({
      workers: WORKERS,
      layers: SHAPE.layers,
      predictor: createPredictor(SHAPE),
      cost: DEFAULT_COST,
    })
    a!.sharing.policyChanged(again)
    await vi.advanceTimersByTimeAsync(60)
    expect(again.sums!.of(0).some(sum => sum > 0)).toBe(true)
  })

  it('assume that the others sent the same requests until their next message is due', async () => {
    const [a] = replicas(3, () => false)
    await vi.advanceTimersByTimeAsync(10)
    a!.sharing.unseen.sent(1)
    expect([a!.sharing.unseen.on(1), a!.sharing.unseen.on(0)]).toEqual([2, 0])
    await vi.advanceTimersByTimeAsync(6)
    expect(a!.sharing.unseen.on(1)).toBe(0)
  })

  it('keep the others’ sums for a worker that leaves and returns, not for its successor', async () => {
    const [a, b] = replicas(2, () => false)
    const routable = { id: 'r', counts: Uint16Array.from([9, 3, 0, 0, 0, 0]) }
    b!.tracker.take('d0', 'decode', 1, 0)
    b!.policy.dispatched!(routable, 0)
    await vi.advanceTimersByTimeAsync(50)
    expect(a!.policy.sums!.of(0).some(sum => sum > 0)).toBe(true)
    a!.registry.remove('d0')
    expect([...a!.policy.sums!.of(0)]).toEqual([0, 0, 0, 0, 0, 0])
    a!.registry.add({ id: 'd9', role: 'decode', url: 'http://d9' }, 0)
    expect([...a!.policy.sums!.of(0)]).toEqual([0, 0, 0, 0, 0, 0])
    a!.registry.remove('d9')
    a!.registry.add({ id: 'd0', role: 'decode', url: 'http://d0' }, 0)
    expect(a!.policy.sums!.of(0).some(sum => sum > 0)).toBe(true)
  })
})
