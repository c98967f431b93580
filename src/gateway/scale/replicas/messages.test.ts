import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { decode, encode, type Message, workerKey, MAX_LEASE_MS } from './messages.ts'
import { difference, packRow, quantise, unpackRow } from './rows.ts'

const from = fc.record({ id: fc.stringMatching(/^[\w.:-]{1,64}$/), boot: fc.nat(2 ** 32 - 1) })
const key = fc.nat({ max: 2 ** 48 - 1 })
const row = (cells: number) =>
  fc
    .array(fc.oneof(fc.constant(0), fc.nat(255)), { minLength: cells, maxLength: cells })
    .map(list => Uint8Array.from(list))
const state = fc.integer({ min: 1, max: 40 }).chain(cells =>
  fc.record({
    kind: fc.constant('state' as const),
    from,
    seq: fc.nat({ max: Number.MAX_SAFE_INTEGER }),
    leaseMs: fc.nat(MAX_LEASE_MS),
    loads: fc.uniqueArray(fc.record({ key, inflight: fc.nat(2 ** 31), tokens: fc.nat({ max: 2 ** 48 }) }), {
      selector: entry => entry.key,
    }),
    cells: fc.constant(cells),
    whole: fc.boolean(),
    rows: fc.uniqueArray(fc.record({ key, packed: row(cells).map(packRow) }), {
      selector: entry => entry.key,
      maxLength: 8,
    }),
  }),
)
const message: fc.Arbitrary<Message> = fc.oneof(
  state,
  fc.record({ kind: fc.constant('ask' as const), from, of: fc.stringMatching(/^[\w.:-]{0,64}$/) }),
  fc.record({ kind: fc.constantFrom('leave' as const, 'changed' as const), from }),
)

describe('a message between replicas', () => {
  it('is decoded as it was encoded', () => {
    fc.assert(
      fc.property(message, sent => void expect(decode(encode(sent))).toEqual({ kind: 'ok', message: sent })),
    )
  })

  it('that is truncated or has trailing bytes is malformed', () => {
    fc.assert(
      fc.property(message, fc.nat(), fc.uint8Array({ minLength: 1, maxLength: 9 }), (sent, cut, more) => {
        const bytes = encode(sent)
        expect(decode(Buffer.concat([bytes, more]))).toEqual({ kind: 'malformed' })
        const short = decode(bytes.subarray(0, 3 + (cut % (bytes.length - 3))))
        expect(short).toEqual({ kind: 'malformed' })
      }),
    )
  })

  it('of arbitrary bytes is ignored without an exception', () => {
    fc.assert(
      fc.property(
        fc.uint8Array({ maxLength: 300 }),
        bytes => void expect(() => decode(Buffer.from(bytes))).not.toThrow(),
      ),
    )
    fc.assert(
      fc.property(
        fc.uint8Array({ maxLength: 300 }),
        bytes => void expect(() => decode(Buffer.from([0xe1, 1, 0, ...bytes]))).not.toThrow(),
      ),
    )
    expect(decode(Buffer.from('{"hello":1}'))).toEqual({ kind: 'foreign' })
    expect(decode(Buffer.from([0xe1, 2, 0]))).toEqual({ kind: 'foreign' })
    expect(decode(Buffer.alloc(0))).toEqual({ kind: 'foreign' })
  })

  it('with a duplicate worker is malformed: its load would count twice', () => {
    const twice = { key: 7, inflight: 1, tokens: 1 }
    const bytes = encode({
      kind: 'state',
      from: { id: 'a', boot: 1 },
      seq: 1,
      leaseMs: 9,
      loads: [twice, twice],
      cells: 0,
      whole: true,
      rows: [],
    })
    expect(decode(bytes)).toEqual({ kind: 'malformed' })
  })

  it('has different keys for a prefill and a decode worker with the same id', () => {
    expect(workerKey('prefill', 'a:1')).not.toBe(workerKey('decode', 'a:1'))
    expect(workerKey('decode', 'a:1')).toBe(workerKey('decode', 'a:1'))
    expect(workerKey('decode', 'a:1')).toBeLessThan(2 ** 48)
  })
})

describe('a row of sums', () => {
  it('is unpacked as it was packed, and takes three bytes for a worker without requests', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 400 }).chain(row),
        cells => void expect(unpackRow(packRow(cells), cells.length)).toEqual(cells),
      ),
    )
    expect(packRow(new Uint8Array(14_848)).length).toBe(3)
  })

  it('is precise enough: e^−S is within 0.01, and zero is exact', () => {
    fc.assert(
      fc.property(fc.nat(16_384 * 30), sum => {
        const [q] = quantise(Int32Array.of(sum))
        const [back] = difference(undefined, Uint8Array.of(q!), 1)
        expect(Math.abs(Math.exp(-back! / 16_384) - Math.exp(-sum / 16_384))).toBeLessThan(0.01)
      }),
    )
    expect([...quantise(Int32Array.of(0, -5))]).toEqual([0, 0])
  })

  it('has differences that sum up to zero when the row is removed', () => {
    fc.assert(
      fc.property(fc.array(row(6), { maxLength: 12 }), rows => {
        const sums = new Int32Array(6)
        let before: Uint8Array | undefined
        for (const after of [...rows, undefined]) {
          const delta = difference(before, after, 6)
          for (let c = 0; c < 6; c++) sums[c]! += delta[c]!
          expect(sums.every(sum => sum >= 0)).toBe(true)
          before = after
        }
        expect([...sums]).toEqual([0, 0, 0, 0, 0, 0])
      }),
    )
  })
})
