/** Policies compared round by round: in a round all policies had the same requests at the same times. */
import { type Interval, meanInterval } from '../sim/confidence.ts'
import type { ServedRun, ServedSteps } from './result-file.ts'

/** The policy that the others are compared with. */
export const BASE = 'jsq'

/** What the comparison needs of a run, served or simulated. */
export interface PairedRun {
  readonly policy: string
  /** Runs of one round are compared with each other: a round of a served run, a seed of a simulated one. */
  readonly round: number
}

/** Policies in order of their first run. */
export function policiesOf(runs: readonly PairedRun[]): string[] {
  return [...new Set(runs.map(({ policy }) => policy))]
}

/**
 * Relative change against jsq of the same round: mean over the rounds that have both, with its 95 % interval.
 * Undefined if there is none.
 */
export function changeOf<Run extends PairedRun>(
  runs: readonly Run[],
  policy: string,
  value: (run: Run) => number,
): Interval | undefined {
  const changes = runs.flatMap(one => {
    const base = runs.find(other => other.policy === BASE && other.round === one.round)
    return one.policy === policy && base !== undefined ? [value(one) / value(base) - 1] : []
  })
  return changes.length === 0 ? undefined : meanInterval(changes)
}

/** Mean over the rounds of a policy. */
export function meanOf<Run extends PairedRun>(
  runs: readonly Run[],
  policy: string,
  value: (run: Run) => number,
): number {
  const values = runs.filter(one => one.policy === policy).map(value)
  return values.reduce((a, b) => a + b, 0) / values.length
}

/** Batches that a policy must have run this often to be compared. */
const MIN_STEPS = 20

/**
 * Change of the distinct experts of a step against jsq at equal batch: the mean over batches that both ran
 * often enough, each weighted by the fewer of its steps. Undefined if there is no such batch.
 */
export function expertsAtEqualBatch(runs: readonly ServedRun[], policy: string): number | undefined {
  const [base, other] = [byBatch(stepsOf(runs, BASE)), byBatch(stepsOf(runs, policy))]
  let [sum, weights] = [0, 0]
  for (const [batch, { count, experts }] of other) {
    const same = base.get(batch)
    if (same === undefined || Math.min(count, same.count) < MIN_STEPS) continue
    const weight = Math.min(count, same.count)
    sum += weight * (experts / count / (same.experts / same.count) - 1)
    weights += weight
  }
  return weights === 0 ? undefined : sum / weights
}

function stepsOf(runs: readonly ServedRun[], policy: string): ServedSteps[] {
  return runs.filter(one => one.policy === policy).flatMap(({ steps }) => steps ?? [])
}

function byBatch(all: readonly ServedSteps[]): Map<number, { count: number; experts: number }> {
  const sums = new Map<number, { count: number; experts: number }>()
  for (const { batch, experts } of all)
    batch.forEach((size, i) => {
      const sum = sums.get(size) ?? { count: 0, experts: 0 }
      sum.count++
      sum.experts += experts[i]!
      sums.set(size, sum)
    })
  return sums
}
