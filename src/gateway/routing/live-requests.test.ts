import { describe, expect, it } from 'vitest'
import type { RoutableRequest } from '../../policy/decode-policy.ts'
import { LiveRequests } from './live-requests.ts'
import type { RoutingTable } from './routing-table.ts'

/** A table whose policy records the requests it counts, and needs `takesMs` for each. */
function tableOf(model?: object, takesMs = 0) {
  const known = new Set<RoutableRequest>()
  const policy = {
    dispatched(request: RoutableRequest) {
      for (const untilMs = performance.now() + takesMs; performance.now() < untilMs;);
      expect(known.has(request)).toBe(false)
      known.add(request)
    },
    released(request: RoutableRequest) {
      expect(known.delete(request)).toBe(true)
    },
  }
  return { known, table: { policy, artifact: model && { primary: { model } } } as unknown as RoutingTable }
}
const requests = (count: number): RoutableRequest[] =>
  Array.from({ length: count }, (_, n) => ({ id: `r-${n}`, signature: new Float32Array(1) }))
const turn = () => new Promise(setImmediate)

describe('requests in flight', () => {
  it('are counted by the policy in force and by no other, whenever they end', () => {
    const model = {}
    const [first, second] = [tableOf(model), tableOf(model)]
    const live = new LiveRequests(first.table)
    const [a, b, c] = requests(3) as [RoutableRequest, RoutableRequest, RoutableRequest]
    live.take(a, 0, 'w')
    live.take(b, 1, 'v')
    expect(live.workersOf('r')).toEqual(['w', 'v'])
    live.leave(a)
    live.moveTo(second.table)
    live.take(c, 0, 'w')
    expect(second.known).toEqual(new Set([b, c]))
    live.leave(b)
    live.leave(b)
    live.leave(c)
    expect(second.known.size).toBe(0)
    expect(live.workersOf('r')).toEqual([])
  })

  it('lose their signature when the artifact changes', async () => {
    const [first, second, third] = [tableOf({ a: 1 }), tableOf({ b: 1 }), tableOf()]
    const live = new LiveRequests(first.table)
    const [request] = requests(1) as [RoutableRequest]
    live.take(request, 0, 'w')
    live.moveTo(second.table)
    live.moveTo(third.table)
    await turn() // a move that takes too long goes on in the next turn
    expect([...second.known, ...third.known]).toEqual([{ id: 'r-0' }, { id: 'r-0' }])
    live.leave(request)
    expect(third.known.size).toBe(0)
  })

  it('are moved over several turns of the event loop, and may end during the move', async () => {
    const [first, second, third] = [tableOf(), tableOf(undefined, 0.5), tableOf(undefined, 0.5)]
    const live = new LiveRequests(first.table)
    const all = requests(40)
    for (const request of all) live.take(request, 0, 'w')
    live.moveTo(second.table)
    expect(second.known.size).toBeGreaterThan(0)
    expect(second.known.size).toBeLessThan(10)
    for (const request of all.slice(0, 20)) live.leave(request)
    await turn()
    live.moveTo(third.table) // the last table counts
    const late = { id: 'late' }
    live.take(late, 0, 'w')
    for (let n = 0; n < 40; n++) await turn()
    expect(third.known).toEqual(new Set([...all.slice(20), late]))
    for (const request of [...all, late]) live.leave(request)
    expect(third.known.size).toBe(0)
  })
})
