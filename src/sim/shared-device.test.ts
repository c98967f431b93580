import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { SharedDevice } from './shared-device.ts'

interface Piece {
  readonly atUs: number
  readonly workUs: number
}

/** When each piece ends, by the device. */
function ends(pieces: readonly Piece[], capacity?: number): number[] {
  const device = new SharedDevice(capacity)
  const endUs = pieces.map(() => NaN)
  const coming = pieces.map((piece, member) => ({ ...piece, member })).sort((a, b) => a.atUs - b.atUs)
  for (;;) {
    const next = coming[0]?.atUs ?? Infinity
    if (device.size === 0 && next === Infinity) return endUs
    if (device.dueUs <= next) {
      const atUs = device.dueUs
      endUs[device.end()] = atUs
    } else {
      const { member, workUs, atUs } = coming.shift()!
      device.enter(member, workUs, atUs)
    }
  }
}

/** The same in small steps of time: obvious, slow and only nearly exact. */
function endsInSteps(pieces: readonly Piece[], capacity: number, tickUs: number): number[] {
  const left = pieces.map(({ workUs }) => workUs)
  const endUs = pieces.map(() => NaN)
  for (let nowUs = 0; endUs.some(Number.isNaN); nowUs += tickUs) {
    const running = pieces.flatMap(({ atUs }, i) => (atUs <= nowUs && Number.isNaN(endUs[i]) ? [i] : []))
    for (const i of running) {
      left[i]! -= tickUs * Math.min(1, capacity / running.length)
      if (left[i]! <= 0) endUs[i] = nowUs + tickUs
    }
  }
  return endUs
}

const pieces = fc.array(
  fc.record({ atUs: fc.integer({ min: 0, max: 400 }), workUs: fc.integer({ min: 1, max: 200 }) }),
  { minLength: 1, maxLength: 8 },
)

describe('a shared device', () => {
  it('does one piece of work in its own time', () => {
    expect(ends([{ atUs: 7, workUs: 100 }])).toEqual([107])
  })

  it('takes twice as long for two equal pieces that begin together', () => {
    const piece = { atUs: 0, workUs: 100 }
    expect(ends([piece, piece])).toEqual([200, 200])
  })

  it('shares only while pieces overlap', () => {
    // 50 alone, then both at half speed until the first has done its 50: 100 more. The second has 50 left.
    expect(
      ends([
        { atUs: 0, workUs: 100 },
        { atUs: 50, workUs: 100 },
      ]),
    ).toEqual([150, 200])
  })

  it('ends a short piece first, whatever the order of entry', () => {
    // Three at a third until 30; two at half until the second has done its other 30, at 90; then one alone.
    expect(
      ends([
        { atUs: 0, workUs: 100 },
        { atUs: 0, workUs: 40 },
        { atUs: 0, workUs: 10 },
      ]),
    ).toEqual([150, 90, 30])
  })

  it('does as many as its capacity at full speed', () => {
    const piece = { atUs: 0, workUs: 100 }
    expect(ends([piece, piece], 2)).toEqual([100, 100])
    expect(ends([piece, piece, piece], 2)).toEqual([150, 150, 150])
    expect(ends([piece, piece], 1.25)).toEqual([160, 160])
    expect(() => new SharedDevice(0.5)).toThrow('capacity 0.5')
  })

  it('loses and makes no work: a busy device of capacity 1 ends with the sum of the pieces', () => {
    fc.assert(
      fc.property(pieces, given => {
        const together = given.map(({ workUs }) => ({ atUs: 0, workUs }))
        const sum = together.reduce((total, { workUs }) => total + workUs, 0)
        expect(Math.max(...ends(together))).toBeCloseTo(sum, 6)
        // Busy periods end when the work that came has been done, in any order of service.
        const inOrder = [...given].sort((a, b) => a.atUs - b.atUs)
        let doneUs = 0
        for (const { atUs, workUs } of inOrder) doneUs = Math.max(doneUs, atUs) + workUs
        expect(Math.max(...ends(given))).toBeCloseTo(doneUs, 6)
      }),
    )
  })

  it('ends no piece before its own time, nor after all work that could be before it', () => {
    fc.assert(
      fc.property(pieces, fc.integer({ min: 4, max: 16 }), (given, quarters) => {
        const capacity = quarters / 4
        ends(given, capacity).forEach((endUs, i) => {
          expect(endUs - given[i]!.atUs).toBeGreaterThanOrEqual(given[i]!.workUs - 1e-6)
          expect(endUs - given[i]!.atUs).toBeLessThanOrEqual(
            given.reduce((sum, { workUs }) => sum + workUs, 0) + 1e-6,
          )
        })
      }),
    )
  })

  it('agrees with a simulation in small steps of time', () => {
    fc.assert(
      fc.property(pieces, fc.integer({ min: 4, max: 12 }), (given, quarters) => {
        const tickUs = 1 / 64
        const plain = endsInSteps(given, quarters / 4, tickUs)
        // An end may be seen a tick late, which lets the others wait a tick longer.
        ends(given, quarters / 4).forEach((endUs, i) =>
          expect(Math.abs(endUs - plain[i]!)).toBeLessThanOrEqual(tickUs * (given.length + 1)),
        )
      }),
      { numRuns: 30 },
    )
  })
})
