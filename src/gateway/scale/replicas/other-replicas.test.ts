import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { StateMessage } from './messages.ts'
import { OtherReplicas } from './other-replicas.ts'
import { packRow } from './rows.ts'

const CELLS = 4
const of = (id: string, seq: number, more: Partial<StateMessage> = {}): StateMessage => ({
  kind: 'state',
  from: { id, boot: 1 },
  seq,
  leaseMs: 1_000,
  loads: [],
  cells: 0,
  whole: true,
  rows: [],
  ...more,
})
const load = (key: number, inflight: number) => ({ key, inflight, tokens: 10 * inflight })
const rowOf = (key: number, ...values: number[]) => ({ key, packed: packRow(Uint8Array.from(values)) })

describe('the load of the other replicas', () => {
  it('is the sum of the last messages, never negative, and zero when all replicas are gone', () => {
    const step = fc.record({
      who: fc.constantFrom('a', 'b', 'c'),
      what: fc.oneof(
        fc.uniqueArray(fc.tuple(fc.nat(3), fc.integer({ min: 1, max: 9 })), { selector: ([key]) => key }),
        fc.constantFrom('leaves' as const, 'dies' as const),
      ),
    })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), steps => {
        const others = new OtherReplicas()
        const last = new Map<string, [number, number][]>()
        const boots = new Map<string, number>()
        const [gone, died]: [string[], string[]] = [[], []]
        let nowMs = 0
        for (const [at, { who, what }] of steps.entries()) {
          if (what === 'leaves') others.forget({ id: who, boot: boots.get(who) ?? -1 })
          if (what === 'leaves') last.delete(who)
          if (what === 'dies') {
            // The others renew their leases in time.
            nowMs += 999
            for (const [id, loads] of last) {
              if (id === who) continue
              boots.set(id, at)
              others.received(
                of(id, 1_000 + at, { loads: loads.map(([k, n]) => load(k, n)), from: { id, boot: at } }),
                nowMs,
              )
            }
            nowMs += 1
            gone.push(...others.expire(nowMs))
            died.push(...(last.has(who) ? [who] : []))
            last.delete(who)
          }
          if (typeof what === 'object') {
            others.received(
              of(who, 1 + at, {
                loads: what.map(([k, n]) => load(k, n)),
                from: { id: who, boot: 10_000 + at },
              }),
              nowMs,
            )
            last.set(who, what)
            boots.set(who, 10_000 + at)
          }
          for (let key = 0; key < 4; key++) {
            const wanted = [...last.values()].flat().reduce((sum, [k, n]) => (k === key ? sum + n : sum), 0)
            expect(others.load(key).inflight).toBe(wanted)
          }
          expect(others.count).toBe(last.size)
          expect(gone).toEqual(died)
        }
        others.expire(nowMs + 1_000)
        expect([0, 1, 2, 3].map(key => others.load(key).inflight)).toEqual([0, 0, 0, 0])
      }),
    )
  })

  it('ignores late and duplicate messages', () => {
    const others = new OtherReplicas()
    expect(others.received(of('a', 5, { loads: [load(1, 3)] }), 0)).toBe('ok')
    expect(others.received(of('a', 4, { loads: [load(1, 9)] }), 1)).toBe('old')
    expect(others.received(of('a', 5, { loads: [load(1, 9)] }), 1)).toBe('old')
    expect(others.load(1).inflight).toBe(3)
  })

  it('is that of the new process alone after a restart with the same id', () => {
    const others = new OtherReplicas()
    others.received(of('a', 5, { loads: [load(1, 3)] }), 0)
    others.received(of('a', 1, { loads: [load(2, 1)], from: { id: 'a', boot: 2 } }), 1)
    expect([others.count, others.load(1).inflight, others.load(2).inflight]).toEqual([1, 0, 1])
  })

  it('is that of both while two processes have one id, which is reported', () => {
    const others = new OtherReplicas()
    const twin = (boot: number, seq: number, inflight: number) =>
      others.received(of('a', seq, { loads: [load(1, inflight)], from: { id: 'a', boot } }), 0)
    expect([twin(1, 5, 3), twin(2, 1, 4), others.load(1).inflight]).toEqual(['ok', 'ok', 4])
    expect([twin(1, 6, 3), twin(2, 2, 5), others.load(1).inflight, others.count]).toEqual([
      'twin',
      'ok',
      8,
      2,
    ])
    others.forget({ id: 'a', boot: 1 })
    expect(others.load(1).inflight).toBe(5)
  })

  it('is accepted again after a message with a forged sequence number', () => {
    const others = new OtherReplicas()
    others.received(of('a', 5, { loads: [load(1, 3)] }), 0)
    others.received(of('a', Number.MAX_SAFE_INTEGER, { loads: [load(1, 1_000_000)] }), 1)
    const outcomes = Array.from({ length: 10 }, (_, n) =>
      others.received(of('a', 6 + n, { loads: [load(1, 2)] }), 2 + n),
    )
    expect(outcomes).toEqual([...Array.from({ length: 7 }, () => 'old'), 'ok', 'ok', 'ok'])
    expect(others.load(1).inflight).toBe(2)
  })

  it('is limited in replicas and workers', () => {
    const others = new OtherReplicas(() => {}, { isKnown: key => key < 10, cells: 0 })
    const loads = Array.from({ length: 100 }, (_, key) => load(key, 1))
    const outcomes = Array.from({ length: 300 }, (_, n) => others.received(of(`r${n}`, 1, { loads }), 0))
    expect([outcomes.filter(each => each === 'ok').length, outcomes.at(-1), others.count]).toEqual([
      256,
      'too_many',
      256,
    ])
    expect([others.load(9).inflight, others.load(10).inflight]).toEqual([256, 0])
  })

  it('ends exactly with the lease, and not while it is renewed', () => {
    const others = new OtherReplicas()
    others.received(of('a', 1, { loads: [load(1, 3)] }), 100)
    expect(others.nextExpiryMs).toBe(1_100)
    others.received(of('a', 2, { loads: [load(1, 3)] }), 900)
    expect(others.expire(1_899)).toEqual([])
    expect(others.expire(1_900)).toEqual(['a'])
    expect([others.load(1).inflight, others.nextExpiryMs]).toEqual([0, undefined])
  })
})

describe('rows of the other replicas', () => {
  const WANTED = { isKnown: () => true, cells: CELLS }
  const rows = (others: OtherReplicas) => [...others.rows(CELLS)].map(([key, row]) => [key, [...row]])

  it('stay until they are changed, and those missing from a whole message are removed', () => {
    const changes: unknown[] = []
    const others = new OtherReplicas(
      (key, before, after) => changes.push([key, before && [...before], after && [...after]]),
      WANTED,
    )
    expect(
      others.received(of('a', 1, { cells: CELLS, rows: [rowOf(1, 1, 2, 3, 4), rowOf(2, 5, 0, 0, 0)] }), 0),
    ).toBe('ok')
    expect(others.received(of('a', 2, { cells: CELLS, whole: false, rows: [rowOf(1, 9, 2, 3, 4)] }), 0)).toBe(
      'ok',
    )
    expect(rows(others)).toEqual([
      [1, [9, 2, 3, 4]],
      [2, [5, 0, 0, 0]],
    ])
    others.received(of('a', 3, { cells: CELLS, rows: [rowOf(2, 5, 0, 0, 0)] }), 0)
    expect(rows(others)).toEqual([[2, [5, 0, 0, 0]]])
    expect(changes.slice(2)).toEqual([
      [1, [1, 2, 3, 4], [9, 2, 3, 4]],
      [1, [9, 2, 3, 4], undefined],
      [2, [5, 0, 0, 0], [5, 0, 0, 0]],
    ])
  })

  it('must be asked for if a message was missed, or if the first is not whole', () => {
    const others = new OtherReplicas(() => {}, WANTED)
    expect(others.received(of('a', 7, { cells: CELLS, whole: false }), 0)).toBe('missed_rows')
    expect(others.received(of('a', 8, { cells: CELLS, whole: false }), 0)).toBe('missed_rows')
    expect(others.received(of('a', 9, { cells: CELLS }), 0)).toBe('ok')
    expect(others.received(of('a', 10, { cells: CELLS, whole: false, loads: [load(1, 2)] }), 0)).toBe('ok')
    expect(others.received(of('a', 12, { cells: CELLS, whole: false, loads: [load(1, 4)] }), 0)).toBe(
      'missed_rows',
    )
    expect(others.load(1).inflight).toBe(4)
  })

  it('that are malformed make the whole message malformed', () => {
    const others = new OtherReplicas(() => {}, WANTED)
    others.received(of('a', 1, { cells: CELLS, loads: [load(1, 1)] }), 0)
    const broken = { key: 1, packed: Buffer.from([0, 99]) }
    expect(others.received(of('a', 2, { cells: CELLS, loads: [load(1, 5)], rows: [broken] }), 0)).toBe(
      'malformed',
    )
    expect(others.load(1).inflight).toBe(1)
  })
})
