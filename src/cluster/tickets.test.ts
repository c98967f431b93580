import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Ticket, LoadTracker } from './tickets.ts'

const WORKERS = ['a', 'b']
const LEGS = ['prefill', 'decode'] as const

describe('the load tracker', () => {
  it('matches a list of all live tickets under any schedule, and ends at zero', () => {
    const step = fc.oneof(
      {
        weight: 4,
        arbitrary: fc.record({
          do: fc.constant('take' as const),
          worker: fc.constantFrom(...WORKERS),
          leg: fc.constantFrom(...LEGS),
          tokens: fc.nat(9000),
        }),
      },
      { weight: 4, arbitrary: fc.record({ do: fc.constant('release' as const), which: fc.nat() }) },
      {
        weight: 1,
        arbitrary: fc.record({ do: fc.constant('retire' as const), worker: fc.constantFrom(...WORKERS) }),
      },
      { weight: 1, arbitrary: fc.record({ do: fc.constant('janitor' as const), olderThanMs: fc.nat(30) }) },
    )
    fc.assert(
      fc.property(fc.array(step, { maxLength: 120 }), steps => {
        const tracker = new LoadTracker()
        const life: Record<string, number> = { a: 0, b: 0 }
        let live: { ticket: Ticket; life: number }[] = []
        const dead: Ticket[] = []
        const drop = (gone: typeof live) => {
          live = live.filter(one => !gone.includes(one))
          dead.push(...gone.map(({ ticket }) => ticket))
        }
        const expectEqual = () => {
          for (const leg of LEGS) {
            const sum = (list: typeof live) => ({
              inflight: list.length,
              tokens: list.reduce((all, { ticket }) => all + ticket.tokens, 0),
            })
            for (const worker of WORKERS)
              expect({
                inflight: tracker.inflight(worker, leg),
                tokens: tracker.tokens(worker, leg),
              }).toEqual(
                sum(
                  live.filter(
                    ({ ticket, life: of }) =>
                      ticket.worker === worker && ticket.leg === leg && of === life[worker],
                  ),
                ),
              )
            expect(tracker.total(leg)).toEqual(sum(live.filter(({ ticket }) => ticket.leg === leg)))
          }
        }
        let [doubles, leaked] = [0, 0]
        steps.forEach((step, nowMs) => {
          if (step.do === 'take')
            live.push({
              ticket: tracker.take(step.worker, step.leg, step.tokens, nowMs),
              life: life[step.worker]!,
            })
          if (step.do === 'retire') {
            tracker.retire(step.worker)
            life[step.worker]!++
          }
          if (step.do === 'janitor') {
            const old = live.filter(({ ticket }) => nowMs - ticket.takenMs > step.olderThanMs)
            leaked += tracker.findLeaks(nowMs, step.olderThanMs).length
            drop(old)
          }
          if (step.do === 'release' && live.length + dead.length > 0) {
            const which = step.which % (live.length + dead.length)
            if (which < live.length) {
              live[which]!.ticket.release()
              drop([live[which]!])
            } else {
              dead[which - live.length]!.release()
              doubles++
            }
          }
          expectEqual()
        })
        for (const { ticket } of live) ticket.release()
        live = []
        expectEqual()
        expect({ doubles: tracker.doubleReleases, leaked: tracker.leaked }).toEqual({ doubles, leaked })
      }),
    )
  })

  it('does not go below zero when a ticket is released twice: the second release is counted and has no effect (a load of −1 would attract every request)', () => {
    const tracker = new LoadTracker()
    const [first] = [tracker.take('d', 'decode', 10, 0), tracker.take('d', 'decode', 20, 0)]
    first.release()
    first.release()
    expect({ inflight: tracker.inflight('d', 'decode'), tokens: tracker.tokens('d', 'decode') }).toEqual({
      inflight: 1,
      tokens: 20,
    })
    expect(tracker.doubleReleases).toBe(1)
  })

  it('does not count the tokens of one leg on the other (llm-d-router #2395)', () => {
    const tracker = new LoadTracker()
    tracker.take('both', 'prefill', 4000, 0)
    tracker.take('both', 'decode', 64, 0)
    expect([tracker.tokens('both', 'prefill'), tracker.tokens('both', 'decode')]).toEqual([4000, 64])
    expect([tracker.total('prefill'), tracker.total('decode')]).toEqual([
      { inflight: 1, tokens: 4000 },
      { inflight: 1, tokens: 64 },
    ])
  })

  it('does not keep prefill busy until the decode stream ends: each leg has its own ticket (sglang #34850)', () => {
    const tracker = new LoadTracker()
    const prefill = tracker.take('p', 'prefill', 100, 0)
    tracker.take('d', 'decode', 100, 0)
    prefill.release()
    expect([tracker.inflight('p', 'prefill'), tracker.inflight('d', 'decode')]).toEqual([0, 1])
  })

  it('does not keep the load of a request that never ended: the janitor finds and reports it (vllm-router: +1 after a client left)', () => {
    const tracker = new LoadTracker()
    let told = 0
    const lost = tracker.take('d', 'decode', 10, 1000, () => told++)
    tracker.take('d', 'decode', 10, 5000)
    expect(tracker.findLeaks(11_000, 10_000)).toEqual([])
    expect(tracker.findLeaks(11_001, 10_000)).toEqual([lost])
    expect([tracker.inflight('d', 'decode'), tracker.leaked, told]).toEqual([1, 1, 1])
    // If it ends later, it is not counted a second time.
    lost.release()
    expect([tracker.inflight('d', 'decode'), tracker.doubleReleases, told]).toEqual([1, 1, 1])
  })

  it('does not lower a worker’s load by tickets of a former worker of the same name', () => {
    const tracker = new LoadTracker()
    const old = tracker.take('d', 'decode', 10, 0)
    tracker.retire('d')
    expect(tracker.inflight('d', 'decode')).toBe(0)
    tracker.take('d', 'decode', 7, 0)
    old.release()
    expect([
      tracker.inflight('d', 'decode'),
      tracker.tokens('d', 'decode'),
      tracker.total('decode').inflight,
    ]).toEqual([1, 7, 1])
  })

  it('takes and releases in constant time with a hundred thousand tickets out', () => {
    const tracker = new LoadTracker()
    const nsEach = () => {
      const beganNs = process.hrtime.bigint()
      for (let n = 0; n < 2000; n++) tracker.take('d', 'decode', 1, 0).release()
      return Number(process.hrtime.bigint() - beganNs) / 2000
    }
    const best = () => Math.min(...Array.from({ length: 10 }, nsEach))
    const empty = best()
    for (let n = 0; n < 100_000; n++) tracker.take('d', 'decode', 1, 0)
    expect(best()).toBeLessThan(20 * empty + 5000)
    expect(tracker.inflight('d', 'decode')).toBe(100_000)
  })
})
