/**
 * Recorded requests drawn so that the mix of domains changes over time. A domain is drawn by its weight at
 * the arrival, then a row of it in shuffled passes. Times and draws depend on the seed alone, so all policies
 * see the same domains at the same times.
 */
import type { Random } from '../math/random.ts'
import { createRowDraw, type RowDraw } from './row-draw.ts'

export type MixSpec =
  /** The trace's own mix, but for a time one domain alone. */
  | {
      readonly kind: 'burst'
      readonly domain: string
      readonly fromSeconds: number
      readonly toSeconds: number
    }
  /**
   * Each domain has its peak once per day, and the length of the day is divided among the peaks by the
   * domains' shares. Twelve hours from its peak a domain does not arrive at all.
   */
  | { readonly kind: 'rotation'; readonly daySeconds: number }

/** A mix of the rows of one trace. */
export interface Mix {
  readonly spec: MixSpec
  readonly domains: readonly string[]
  /** [rows] index into `domains`. */
  readonly domainOf: ArrayLike<number>
}

/** Like `RowDraw`, but `take` needs the time of the arrival. */
export interface TimedRowDraw extends Omit<RowDraw, 'take'> {
  take(arrivalUs: number): number
}

export function createMixDraw(mix: Mix, random: Random): TimedRowDraw {
  const { spec, domains, domainOf } = mix
  const rowsOf = domains.map((_, d) => Array.from(domainOf).flatMap((of, row) => (of === d ? [row] : [])))
  const shares = rowsOf.map(rows => rows.length / domainOf.length)
  const weightsAt = mixWeights(spec, domains, shares)
  const choice = random.fork(0)
  const draws = rowsOf.map((rows, d) => createRowDraw('passes', rows.length, random.fork(1 + d)))
  /** [rows] position within its domain. */
  const placeOf = new Int32Array(domainOf.length)
  for (const rows of rowsOf) rows.forEach((row, place) => (placeOf[row] = place))
  return {
    take(arrivalUs) {
      const domain = picked(weightsAt(arrivalUs / 1e6), choice.uniform())
      return rowsOf[domain]![draws[domain]!.take()]!
    },
    release: row => draws[domainOf[row]!]!.release(placeOf[row]!),
  }
}

/** Weights of the domains at a time in seconds; they need not sum to 1. A domain without rows has none. */
export function mixWeights(
  spec: MixSpec,
  domains: readonly string[],
  shares: readonly number[],
): (seconds: number) => readonly number[] {
  if (spec.kind === 'burst') {
    const { domain, fromSeconds, toSeconds } = spec
    const alone = domains.map((name, d) => (name === domain && shares[d]! > 0 ? 1 : 0))
    if (!alone.includes(1)) throw new RangeError(`no request of domain ${domain}`)
    return seconds => (seconds >= fromSeconds && seconds < toSeconds ? alone : shares)
  }
  let before = 0
  const peaks = shares.map(share => (before += share) - share / 2)
  return seconds =>
    shares.map(
      (share, d) => share * (1 + Math.cos(2 * Math.PI * (seconds / spec.daySeconds - peaks[d]!))) ** 2,
    )
}

/** Index of the weight in whose part of the sum a uniform number in [0, 1) falls. */
function picked(weights: readonly number[], uniform: number): number {
  let left = uniform * weights.reduce((sum, weight) => sum + weight, 0)
  let last = 0
  for (let d = 0; d < weights.length; d++) {
    if (weights[d]! <= 0) continue
    last = d // rounding may leave a little after the last
    left -= weights[d]!
    if (left < 0) return d
  }
  return last
}
