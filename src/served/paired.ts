/** Policies compared round by round: in a round all policies had the same requests at the same times. */
import { type Interval, meanInterval } from '../sim/confidence.ts'
import type { ServedRun } from './result-file.ts'

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
  const [base, other] = [byBatch(runs, BASE), byBatch(runs, policy)]
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

/**
 * Steps and the sum of their experts by batch size: of all steps if they were counted, or of the recorded
 * ones.
 */
function byBatch(runs: readonly ServedRun[], policy: string): Map<number, BatchSum> {
  const sums = new Map<number, BatchSum>()
  const add = (batch: number, count: number, experts: number) => {
    const sum = sums.get(batch) ?? { count: 0, experts: 0 }
    sums.set(batch, { count: sum.count + count, experts: sum.experts + experts })
  }
  for (const { policy: own, byBatch: counted, steps } of runs) {
    if (own !== policy) continue
    counted?.batch.forEach((batch, i) =>
      add(batch, counted.steps[i]!, counted.steps[i]! * counted.experts[i]!),
    )
    if (counted === undefined) steps?.batch.forEach((batch, i) => add(batch, 1, steps.experts[i]!))
  }
  return sums
}

interface BatchSum {
  readonly count: number
  readonly experts: number
}
