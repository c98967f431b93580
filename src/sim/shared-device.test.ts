import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { DeviceSharing } from '../cost/profile.ts'
import { SharedDevice } from './shared-device.ts'

interface Piece {
  readonly atUs: number
  readonly workUs: number
}

type By = DeviceSharing['by']
const RULES: readonly By[] = ['layer', 'bandwidth']

/** When each piece ends, by the device. */
function ends(pieces: readonly Piece[], by: By, capacity = 1): number[] {
  const device = new SharedDevice({ by, capacity })
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
function endsInSteps(pieces: readonly Piece[], { by, capacity }: DeviceSharing, tickUs: number): number[] {
  const left = pieces.map(({ workUs }) => workUs)
  const endUs = pieces.map(() => NaN)
  for (let nowUs = 0; endUs.some(Number.isNaN); nowUs += tickUs) {
    const running = pieces.flatMap(({ atUs }, i) => (atUs <= nowUs && Number.isNaN(endUs[i]) ? [i] : []))
    const sumUs = running.reduce((sum, i) => sum + pieces[i]!.workUs, 0)
    for (const i of running) {
      const share = by === 'bandwidth' ? 1 / running.length : pieces[i]!.workUs / sumUs
      left[i]! -= tickUs * Math.min(1, capacity * share)
      if (left[i]! <= 0) endUs[i] = nowUs + tickUs
    }
  }
  return endUs
}

/** Layers one after the other, in turn: what `layer` is the limit of, for many layers. */
function endsInTurns(worksUs: readonly number[], layers: number): number[] {
  const left = worksUs.map(() => layers)
  const endUs = worksUs.map(() => NaN)
  for (let nowUs = 0; left.some(count => count > 0);)
    worksUs.forEach((workUs, i) => {
      if (left[i] === 0) return
      nowUs += workUs / layers
      if (--left[i]! === 0) endUs[i] = nowUs
    })
  return endUs
}

const pieces = fc.array(
  fc.record({ atUs: fc.integer({ min: 0, max: 400 }), workUs: fc.integer({ min: 1, max: 200 }) }),
  { minLength: 1, maxLength: 8 },
)
const rule = fc.constantFrom(...RULES)
/** The same without the rounding of floats. */
const endsRounded = (...given: Parameters<typeof ends>) => ends(...given).map(us => Number(us.toFixed(9)))

describe.each(RULES)('a device shared by %s', by => {
  it('does one piece of work in its own time', () => {
    expect(ends([{ atUs: 7, workUs: 100 }], by)).toEqual([107])
    expect(ends([{ atUs: 7, workUs: 0 }], by)).toEqual([7])
  })

  it('takes twice as long for two equal pieces that begin together', () => {
    const piece = { atUs: 0, workUs: 100 }
    expect(endsRounded([piece, piece], by)).toEqual([200, 200])
  })

  it('shares only while pieces overlap', () => {
    // 50 alone, then both at half speed until the first has done its 50: 100 more. The second has 50 left.
    const late = [
      { atUs: 0, workUs: 100 },
      { atUs: 50, workUs: 100 },
    ]
    expect(endsRounded(late, by)).toEqual([150, 200])
  })

  it('does as many equal pieces as its capacity at full speed', () => {
    const piece = { atUs: 0, workUs: 100 }
    expect(endsRounded([piece, piece], by, 2)).toEqual([100, 100])
    expect(endsRounded([piece, piece, piece], by, 2)).toEqual([150, 150, 150])
    expect(endsRounded([piece, piece], by, 1.25)).toEqual([160, 160])
    expect(() => new SharedDevice({ by, capacity: 0.5 })).toThrow('capacity 0.5')
  })
})

describe('a shared device', () => {
  const three = [100, 40, 10].map(workUs => ({ atUs: 0, workUs }))

  it('by bandwidth ends short pieces first', () => {
    // Three at a third until 30; two at half until the second has done its other 30, at 90; then one alone.
    expect(endsRounded(three, 'bandwidth')).toEqual([150, 90, 30])
  })

  it('by layer ends pieces that begin together together, when all are done', () => {
    expect(endsRounded(three, 'layer')).toEqual([150, 150, 150])
  })

  it('by layer lets a short piece that comes later wait for a long one', () => {
    // 50 of 100 alone, then in turns, in which both advance by 1/110 of themselves per µs.
    // The long one has half of itself left, 55 µs. The short one has done half by then, and is alone for 5.
    const late = [
      { atUs: 0, workUs: 100 },
      { atUs: 50, workUs: 10 },
    ]
    expect(endsRounded(late, 'layer')).toEqual([105, 110])
  })

  it('by layer is the limit of kernels in turn', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 200 }), { minLength: 1, maxLength: 6 }), worksUs => {
        const limit = ends(
          worksUs.map(workUs => ({ atUs: 0, workUs })),
          'layer',
        )
        endsInTurns(worksUs, 48).forEach((endUs, i) =>
          expect(Math.abs(endUs - limit[i]!)).toBeLessThanOrEqual(
            worksUs.reduce((a, b) => a + b, 0) / 48 + 1e-6,
          ),
        )
      }),
    )
  })

  it('loses and makes no work: it ends when the work that came has been done, in any order', () => {
    fc.assert(
      fc.property(pieces, rule, (given, by) => {
        const inOrder = [...given].sort((a, b) => a.atUs - b.atUs)
        let doneUs = 0
        for (const { atUs, workUs } of inOrder) doneUs = Math.max(doneUs, atUs) + workUs
        expect(Math.max(...ends(given, by))).toBeCloseTo(doneUs, 6)
      }),
    )
  })

  it('ends no piece before its own time, nor after all work that could be before it', () => {
    fc.assert(
      fc.property(pieces, rule, fc.integer({ min: 4, max: 16 }), (given, by, quarters) => {
        ends(given, by, quarters / 4).forEach((endUs, i) => {
          const tookUs = endUs - given[i]!.atUs
          expect(tookUs).toBeGreaterThanOrEqual(given[i]!.workUs - 1e-6)
          expect(tookUs).toBeLessThanOrEqual(given.reduce((sum, { workUs }) => sum + workUs, 0) + 1e-6)
        })
      }),
    )
  })

  it('agrees with a simulation in small steps of time', () => {
    fc.assert(
      fc.property(pieces, rule, fc.integer({ min: 4, max: 12 }), (given, by, quarters) => {
        const tickUs = 1 / 64
        const plain = endsInSteps(given, { by, capacity: quarters / 4 }, tickUs)
        // An end may be seen a tick late, which lets the others wait a tick longer.
        ends(given, by, quarters / 4).forEach((endUs, i) =>
          expect(Math.abs(endUs - plain[i]!)).toBeLessThanOrEqual(tickUs * 2 * (given.length + 1)),
        )
      }),
      { numRuns: 30 },
    )
  })
})
