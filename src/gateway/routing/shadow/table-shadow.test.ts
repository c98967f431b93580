import { describe, expect, it } from 'vitest'
import {
  DECODE_POLICIES,
  type DecodePolicy,
  type PolicyDescriptor,
  type RoutableRequest,
} from '../../../policy/decode-policy.ts'
import { createRandom } from '../../../math/random.ts'
import { ShadowCounts } from '../../observe/shadow-counts.ts'
import { createRoutingTable, type RoutingTable } from '../routing-table.ts'
import { LiveRequests } from '../live-requests.ts'
import { CpuBudget } from './cpu-budget.ts'
import { RecordedRandom } from './recorded-random.ts'
import type { ShadowOptions } from './table-shadow.ts'

const SHAPE = { layers: 2, experts: 8, topK: 2 }
const WORKERS = 3
const random = createRandom(5)
const budget = new CpuBudget({ share: 1 })

function requestOf(number: number): RoutableRequest {
  const counts = Uint16Array.from({ length: SHAPE.layers * SHAPE.experts }, () => 1 + random.below(50))
  return { id: `r-${number}`, counts }
}

function tableWith(
  policy: PolicyDescriptor,
  shadow: ShadowOptions,
  { shape }: { shape?: typeof SHAPE } = { shape: SHAPE },
) {
  const made = createRoutingTable({ policy, workers: WORKERS, minCovered: 0.5, shape, shadow })
  if (made.kind === 'missing') throw new Error(made.missing)
  return made.table
}

/** Decides and dispatches as the router does. */
function decide(table: RoutingTable, live: LiveRequests, load: number[], request: RoutableRequest): void {
  const candidates = load.map((inflight, worker) => ({ worker, inflight }))
  const ties = new RecordedRandom(random.uniform)
  const decision = table.policy.pick(request, candidates, ties)
  const inFlight = () => live.inFlight()
  table.shadow!.decided({
    routable: request,
    candidates,
    policy: table.policy.name,
    decision,
    ties,
    inFlight,
  })
  live.take(request, decision.worker, `w-${decision.worker}`)
  load[decision.worker]!++
}

const plain = DECODE_POLICIES.filter(({ needs }) =>
  (needs as readonly string[]).every(need => need === 'counts'),
)

describe('a shadow policy', () => {
  it.each(plain.map(policy => [policy.name, policy] as const))(
    'agrees with itself in every decision: %s',
    (name, policy) => {
      const counts = new ShadowCounts([name])
      const table = tableWith(policy, { policies: [name], counts, budget })
      const live = new LiveRequests(table)
      table.shadow!.started(name)
      const load = [0, 0, 0]
      const requests = Array.from({ length: 60 }, (_, n) => requestOf(n))
      requests.forEach((request, n) => {
        decide(table, live, load, request)
        if (n % 3 === 2) live.leave(requests[n - 2]!)
      })
      const [row] = counts.view().shadows
      expect(row).toMatchObject({ policy: name, state: 'deciding', decisions: 60, agreed: 60, judged: 60 })
      expect(row!.experts!.shadow).toBe(row!.experts!.inForce)
      expect(row!.costUs!.shadow).toBe(row!.costUs!.inForce)
    },
  )

  it('finds fewer expected experts than a load balancer, by the batches of the load balancer', () => {
    const counts = new ShadowCounts(['union'])
    const jsq = DECODE_POLICIES.find(({ name }) => name === 'jsq')!
    const table = tableWith(jsq, { policies: ['union'], counts, budget })
    const live = new LiveRequests(table)
    table.shadow!.started('jsq')
    const load = [0, 0, 0]
    for (let n = 0; n < 90; n++) {
      // Three kinds of requests, each with experts of its own.
      const counts = new Uint16Array(SHAPE.layers * SHAPE.experts).fill(1)
      for (const layer of [0, 1]) counts.fill(60, layer * 8 + (n % 3) * 2, layer * 8 + (n % 3) * 2 + 2)
      decide(table, live, load, { id: `r-${n}`, counts })
    }
    const [row] = counts.view().shadows
    expect(row!.agreed).toBeLessThan(90)
    expect(row!.experts!.shadow).toBeLessThan(row!.experts!.inForce)
    expect(counts.totals).toMatchObject([{ policy: 'union', inForce: 'jsq', decisions: 90, judged: 90 }])
    // The policy in force decided alone: three equal loads.
    expect(load).toEqual([30, 30, 30])
  })

  it('waits for what it needs, and says what that is', () => {
    const counts = new ShadowCounts(['union', 'jsq', 'eldr'])
    const jsq = DECODE_POLICIES.find(({ name }) => name === 'jsq')!
    const table = tableWith(jsq, { policies: counts.policies, counts, budget }, {})
    table.shadow!.started('jsq')
    decide(table, new LiveRequests(table), [0, 0, 0], { id: 'r' })
    expect(counts.view().shadows).toMatchObject([
      { policy: 'union', state: 'waiting', why: 'an artifact, or the shape of the model', decisions: 0 },
      { policy: 'jsq', state: 'deciding', decisions: 1, agreed: 1, judged: 0 },
      { policy: 'eldr', state: 'waiting', why: 'an artifact with centroids', decisions: 0 },
    ])
  })

  it.each(['pick', 'dispatched', 'released', 'foreign'] as const)(
    'that fails is out until the routing changes, and nothing else notices: %s',
    where => {
      const broken: PolicyDescriptor = {
        name: 'jsq',
        needs: [],
        reasons: [],
        herds: false,
        create: (): DecodePolicy => ({
          name: 'jsq',
          pick: () => (where === 'pick' ? fail() : { worker: where === 'foreign' ? 9 : 0, reason: 'least' }),
          dispatched: () => (where === 'dispatched' ? fail() : undefined),
          released: () => (where === 'released' ? fail() : undefined),
        }),
      }
      const fail = () => {
        throw new Error('broken')
      }
      const failures: string[] = []
      const counts = new ShadowCounts(['jsq', 'union'])
      const shadow: ShadowOptions = {
        policies: [broken, 'union'],
        counts,
        budget,
        failed: policy => failures.push(policy),
      }
      const inForce = DECODE_POLICIES.find(({ name }) => name === 'round_robin')!
      const table = tableWith(inForce, shadow)
      const live = new LiveRequests(table)
      table.shadow!.started('round_robin')
      const load = [0, 0, 0]
      for (let n = 0; n < 6; n++) {
        const request = requestOf(n)
        decide(table, live, load, request)
        live.leave(request)
      }
      expect(load).toEqual([2, 2, 2])
      expect(failures).toEqual(['jsq'])
      expect(counts.errors.get('jsq')).toBe(1)
      const why = expect.stringMatching(where === 'foreign' ? /not a candidate/ : /^broken$/) as string
      expect(counts.view().shadows).toMatchObject([
        { state: 'failed', why },
        { policy: 'union', state: 'deciding', decisions: 6 },
      ])
    },
  )

  it('takes over the requests in flight when the table changes', () => {
    const counts = new ShadowCounts(['union'])
    const shadow = { policies: ['union'] as const, counts, budget }
    const [jsq, union] = ['jsq', 'union'].map(name => DECODE_POLICIES.find(each => each.name === name)!)
    const first = tableWith(jsq!, shadow)
    const live = new LiveRequests(first)
    first.shadow!.started('jsq')
    const load = [0, 0, 0]
    for (let n = 0; n < 9; n++) decide(first, live, load, requestOf(n))
    const second = tableWith(union!, shadow)
    second.shadow!.started('union')
    live.moveTo(second)
    expect(counts.view().shadows[0]!.decisions).toBe(0)
    for (let n = 9; n < 30; n++) decide(second, live, load, requestOf(n))
    // With the same requests in flight, union beside union decides alike.
    expect(counts.view()).toMatchObject({ inForce: 'union', shadows: [{ decisions: 21, agreed: 21 }] })
  })

  it('rests when its time is spent, then takes over the requests in flight and decides again', async () => {
    let nowMs = 0
    const slow: PolicyDescriptor = {
      name: 'jsq',
      needs: [],
      reasons: [],
      herds: false,
      create() {
        const known = new Set<RoutableRequest>()
        return {
          name: 'jsq',
          pick(_, candidates) {
            nowMs += 1
            // It knows every request in flight, and no other.
            expect(known.size).toBe(candidates.reduce((sum, { inflight }) => sum + inflight, 0))
            return { worker: 0, reason: 'least' }
          },
          dispatched: request => void known.add(request),
          released: request => void expect(known.delete(request)).toBe(true),
        }
      },
    }
    const counts = new ShadowCounts(['jsq'])
    const inForce = DECODE_POLICIES.find(({ name }) => name === 'round_robin')!
    const own = new CpuBudget({ share: 0.1, nowMs: () => nowMs })
    const table = tableWith(inForce, { policies: [slow], counts, budget: own })
    const live = new LiveRequests(table)
    table.shadow!.started('round_robin')
    const load = [0, 0, 0]
    const requests: RoutableRequest[] = []
    const decideNext = () => {
      const request = requestOf(requests.length)
      requests.push(request)
      decide(table, live, load, request)
      const worker = requests.length % 3
      if (requests.length > 9) {
        live.leave(requests.at(-10)!)
        load[worker]!--
      }
    }
    for (let n = 0; n < 300; n++) decideNext()
    const before = counts.view()
    // 100 ms at the start and 0.1 per ms are spent, but a phase has 256 decisions.
    expect(before).toMatchObject({ requests: 300, shadows: [{ decisions: 256, state: 'deciding' }] })
    expect(own.isSpent).toBe(true)
    nowMs += 5_000
    decideNext()
    await new Promise(setImmediate)
    for (let n = 0; n < 10; n++) decideNext()
    expect(counts.view()).toMatchObject({ requests: 311, shadows: [{ decisions: 266, state: 'deciding' }] })
    expect(counts.errors.get('jsq')).toBe(0)
  })

  it('stops taking over when its table is replaced, and charges nothing more', async () => {
    let nowMs = 0
    let told = 0
    const slow: PolicyDescriptor = {
      name: 'jsq',
      needs: [],
      reasons: [],
      herds: false,
      create: () => ({
        name: 'jsq',
        pick: () => ({ worker: 0, reason: 'least' }),
        dispatched() {
          told++
          // A turn of the event loop lasts 1 ms.
          for (const untilMs = performance.now() + 2; performance.now() < untilMs;);
        },
      }),
    }
    const own = new CpuBudget({ share: 0.1, nowMs: () => nowMs })
    own.charge(() => (nowMs += 200))
    const counts = new ShadowCounts(['jsq'])
    const inForce = DECODE_POLICIES.find(({ name }) => name === 'round_robin')!
    const table = tableWith(inForce, { policies: [slow], counts, budget: own })
    const live = new LiveRequests(table)
    table.shadow!.started('round_robin')
    const load = [0, 0, 0]
    for (let n = 0; n < 20; n++) decide(table, live, load, requestOf(n))
    nowMs += 5_000
    decide(table, live, load, requestOf(20))
    const before = told
    expect(before).toBeLessThan(20)
    table.shadow!.replaced()
    for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate)
    expect(told).toBe(before)
  })
})
