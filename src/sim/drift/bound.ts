/**
 * The bound on what a policy may cost against joining the shortest queue, on any traffic: means over seeds of
 * the change of TPOT.
 */
import { BAND } from '../../policy/band.ts'
import { JSQ } from '../../policy/jsq.ts'
import { type Interval, meanInterval } from '../confidence.ts'
import { changeAgainst, over, type SweepPoint } from '../sweep.ts'
import type { DriftCell } from './drift-runs.ts'

export const BOUND = { p50: 0.01, p99: 0.03 } as const

/** The policy that all others are compared with. */
export const BASELINE: string = JSQ.name
/** The policy without a bound, whose gain those with a bound must keep. */
export const PAPERS_RULE: string = BAND.name

/** One policy in one scenario, on one traffic, at one rate: means over seeds with 95 % intervals. */
export interface DriftFigures {
  readonly scenario: string
  readonly traffic: string
  readonly rate: number
  readonly policy: string
  /** Milliseconds. */
  readonly p50: Interval
  readonly p99: Interval
  /** Relative changes against the baseline, paired by seed; absent for the baseline itself. */
  readonly p50Change?: Interval
  readonly p99Change?: Interval
  /** Means over seeds: requests in a step, and preemptions in a run. */
  readonly batch: number
  readonly preemptions: number
}

export interface DriftPoint extends SweepPoint {
  readonly cell: DriftCell
}

export function figuresOf(points: readonly DriftPoint[]): DriftFigures[] {
  return points.map(point => {
    const { scenario, traffic, rate, variant } = point.cell
    const base = points.find(
      ({ cell }) =>
        cell.variant === BASELINE &&
        cell.scenario === scenario &&
        cell.traffic === traffic &&
        cell.rate === rate,
    )
    const against = base === undefined || base === point ? undefined : base
    return {
      scenario: scenario.name,
      traffic: traffic.name,
      rate,
      policy: variant,
      p50: over(point, run => run.tpotMs.p50),
      p99: over(point, run => run.tpotMs.p99),
      p50Change: against && changeAgainst(against, point, run => run.tpotMs.p50),
      p99Change: against && changeAgainst(against, point, run => run.tpotMs.p99),
      batch: meanInterval(point.runs.map(run => run.batch)).mean,
      preemptions: meanInterval(point.runs.map(run => run.preemptions)).mean,
    }
  })
}

/** Undefined for the baseline, which is compared with nothing. */
export function keepsBound({
  p50Change,
  p99Change,
}: Pick<DriftFigures, 'p50Change' | 'p99Change'>): boolean | undefined {
  if (p50Change === undefined || p99Change === undefined) return undefined
  return p50Change.mean <= BOUND.p50 && p99Change.mean <= BOUND.p99
}

/** The largest changes of one policy over several cells; undefined if there are none. */
export function worstOf(
  figures: readonly DriftFigures[],
): { readonly p50Change: Interval; readonly p99Change: Interval } | undefined {
  const largest = (of: (one: DriftFigures) => Interval | undefined) =>
    figures
      .flatMap(one => of(one) ?? [])
      .reduce<Interval | undefined>(
        (worst, one) => (worst && worst.mean >= one.mean ? worst : one),
        undefined,
      )
  const [p50Change, p99Change] = [largest(one => one.p50Change), largest(one => one.p99Change)]
  return p50Change && p99Change && { p50Change, p99Change }
}

/** Whether a policy keeps the bound in all these cells; undefined for the baseline. */
export function verdictOf(figures: readonly DriftFigures[]): 'met' | 'missed' | undefined {
  const worst = worstOf(figures)
  return worst && (keepsBound(worst) === true ? 'met' : 'missed')
}
