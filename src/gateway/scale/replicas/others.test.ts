import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { StateMessage } from './messages.ts'
import { Others } from './others.ts'
import { packed } from './rows.ts'

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
const rowOf = (key: number, ...values: number[]) => ({ key, packed: packed(Uint8Array.from(values)) })

describe('what the others have in flight', () => {
  it('is the sum of what each last said, never below zero, and nothing when all are gone', () => {
    const step = fc.record({
      who: fc.constantFrom('a', 'b', 'c'),
      what: fc.oneof(
        fc.uniqueArray(fc.tuple(fc.nat(3), fc.integer({ min: 1, max: 9 })), { selector: ([key]) => key }),
        fc.constantFrom('leaves' as const, 'dies' as const),
      ),
    })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), steps => {
        const others = new Others()
        const said = new Map<string, [number, number][]>()
        const boots = new Map<string, number>()
        const [gone, died]: [string[], string[]] = [[], []]
        let nowMs = 0
        for (const [at, { who, what }] of steps.entries()) {
          if (what === 'leaves') others.forget({ id: who, boot: boots.get(who) ?? -1 })
          if (what === 'leaves') said.delete(who)
          if (what === 'dies') {
            // The rest speak before their leases end.
            nowMs += 999
            for (const [id, loads] of said) {
              if (id === who) continue
              boots.set(id, at)
              others.heard(
                of(id, 1_000 + at, { loads: loads.map(([k, n]) => load(k, n)), from: { id, boot: at } }),
                nowMs,
              )
            }
            nowMs += 1
            gone.push(...others.expire(nowMs))
            died.push(...(said.has(who) ? [who] : []))
            said.delete(who)
          }
          if (typeof what === 'object') {
            others.heard(
              of(who, 1 + at, {
                loads: what.map(([k, n]) => load(k, n)),
                from: { id: who, boot: 10_000 + at },
              }),
              nowMs,
            )
            said.set(who, what)
            boots.set(who, 10_000 + at)
          }
          for (let key = 0; key < 4; key++) {
            const wanted = [...said.values()].flat().reduce((sum, [k, n]) => (k === key ? sum + n : sum), 0)
            expect(others.inflight(key)).toBe(wanted)
          }
          expect(others.count).toBe(said.size)
          expect(gone).toEqual(died)
        }
        others.expire(nowMs + 1_000)
        expect([0, 1, 2, 3].map(key => others.inflight(key))).toEqual([0, 0, 0, 0])
      }),
    )
  })

  it('does not go back to a message that came late, nor to one that came twice', () => {
    const others = new Others()
    expect(others.heard(of('a', 5, { loads: [load(1, 3)] }), 0)).toBe('well')
    expect(others.heard(of('a', 4, { loads: [load(1, 9)] }), 1)).toBe('old')
    expect(others.heard(of('a', 5, { loads: [load(1, 9)] }), 1)).toBe('old')
    expect(others.inflight(1)).toBe(3)
  })

  it('is the new process’s alone when one was started again under the same name', () => {
    const others = new Others()
    others.heard(of('a', 5, { loads: [load(1, 3)] }), 0)
    others.heard(of('a', 1, { loads: [load(2, 1)], from: { id: 'a', boot: 2 } }), 1)
    expect([others.count, others.inflight(1), others.inflight(2)]).toEqual([1, 0, 1])
  })

  it('is that of both while two live under one name, and it is said', () => {
    const others = new Others()
    const twin = (boot: number, seq: number, inflight: number) =>
      others.heard(of('a', seq, { loads: [load(1, inflight)], from: { id: 'a', boot } }), 0)
    expect([twin(1, 5, 3), twin(2, 1, 4), others.inflight(1)]).toEqual(['well', 'well', 4])
    expect([twin(1, 6, 3), twin(2, 2, 5), others.inflight(1), others.count]).toEqual(['twin', 'well', 8, 2])
    others.forget({ id: 'a', boot: 1 })
    expect(others.inflight(1)).toBe(5)
  })

  it('is believed again after somebody has spoken with a number of the far future in its name', () => {
    const others = new Others()
    others.heard(of('a', 5, { loads: [load(1, 3)] }), 0)
    others.heard(of('a', Number.MAX_SAFE_INTEGER, { loads: [load(1, 1_000_000)] }), 1)
    const heard = Array.from({ length: 10 }, (_, n) =>
      others.heard(of('a', 6 + n, { loads: [load(1, 2)] }), 2 + n),
    )
    expect(heard).toEqual([...Array.from({ length: 7 }, () => 'old'), 'well', 'well', 'well'])
    expect(others.inflight(1)).toBe(2)
  })

  it('is of so many replicas and workers as there can be', () => {
    const others = new Others(() => {}, { isKnown: key => key < 10, cells: 0 })
    const loads = Array.from({ length: 100 }, (_, key) => load(key, 1))
    const heard = Array.from({ length: 300 }, (_, n) => others.heard(of(`r${n}`, 1, { loads }), 0))
    expect([heard.filter(each => each === 'well').length, heard.at(-1), others.count]).toEqual([
      256,
      'too_many',
      256,
    ])
    expect([others.inflight(9), others.inflight(10)]).toEqual([256, 0])
  })

  it('ends with the lease to the millisecond, and not while it is renewed', () => {
    const others = new Others()
    others.heard(of('a', 1, { loads: [load(1, 3)] }), 100)
    expect(others.nextExpiryMs).toBe(1_100)
    others.heard(of('a', 2, { loads: [load(1, 3)] }), 900)
    expect(others.expire(1_899)).toEqual([])
    expect(others.expire(1_900)).toEqual(['a'])
    expect([others.inflight(1), others.nextExpiryMs]).toEqual([0, undefined])
  })
})

describe('rows of the others', () => {
  const WANTED = { isKnown: () => true, cells: CELLS }
  const rows = (others: Others) => [...others.rows(CELLS)].map(([key, row]) => [key, [...row]])

  it('stay when they are not told again, and go when all were told', () => {
    const changes: unknown[] = []
    const others = new Others(
      (key, before, after) => changes.push([key, before && [...before], after && [...after]]),
      WANTED,
    )
    expect(
      others.heard(of('a', 1, { cells: CELLS, rows: [rowOf(1, 1, 2, 3, 4), rowOf(2, 5, 0, 0, 0)] }), 0),
    ).toBe('well')
    expect(others.heard(of('a', 2, { cells: CELLS, whole: false, rows: [rowOf(1, 9, 2, 3, 4)] }), 0)).toBe(
      'well',
    )
    expect(rows(others)).toEqual([
      [1, [9, 2, 3, 4]],
      [2, [5, 0, 0, 0]],
    ])
    others.heard(of('a', 3, { cells: CELLS, rows: [rowOf(2, 5, 0, 0, 0)] }), 0)
    expect(rows(others)).toEqual([[2, [5, 0, 0, 0]]])
    expect(changes.slice(2)).toEqual([
      [1, [1, 2, 3, 4], [9, 2, 3, 4]],
      [1, [9, 2, 3, 4], undefined],
      [2, [5, 0, 0, 0], [5, 0, 0, 0]],
    ])
  })

  it('have to be asked for when one was missed, and when the first that is heard is not whole', () => {
    const others = new Others(() => {}, WANTED)
    expect(others.heard(of('a', 7, { cells: CELLS, whole: false }), 0)).toBe('missed_rows')
    expect(others.heard(of('a', 8, { cells: CELLS, whole: false }), 0)).toBe('missed_rows')
    expect(others.heard(of('a', 9, { cells: CELLS }), 0)).toBe('well')
    expect(others.heard(of('a', 10, { cells: CELLS, whole: false, loads: [load(1, 2)] }), 0)).toBe('well')
    expect(others.heard(of('a', 12, { cells: CELLS, whole: false, loads: [load(1, 4)] }), 0)).toBe(
      'missed_rows',
    )
    expect(others.inflight(1)).toBe(4)
  })

  it('that are broken spoil the whole message', () => {
    const others = new Others(() => {}, WANTED)
    others.heard(of('a', 1, { cells: CELLS, loads: [load(1, 1)] }), 0)
    const broken = { key: 1, packed: Buffer.from([0, 99]) }
    expect(others.heard(of('a', 2, { cells: CELLS, loads: [load(1, 5)], rows: [broken] }), 0)).toBe(
      'malformed',
    )
    expect(others.inflight(1)).toBe(1)
  })
})
