/**
 * Saved results of drift scenarios, docs/evidence/results/drift.json: the figures of every cell as a short
 * list of numbers, without paths of the machine that made them.
 */
import type { DriftFigures } from '../sim/drift/bound.ts'
import type { DriftOptions } from '../sim/drift/drift-runs.ts'
import type { Scenario } from '../sim/drift/scenario.ts'
import type { Interval } from '../sim/confidence.ts'

export interface DriftResults extends Pick<
  DriftOptions,
  'policies' | 'rates' | 'requests' | 'profile' | 'topology'
> {
  readonly scenarios: readonly Scenario[]
  readonly traffics: readonly { readonly name: string; readonly domains: readonly string[] }[]
  readonly seeds: number
  /** By scenario, traffic, rate and policy, in these orders; each as `FIELDS` says. */
  readonly cells: readonly (readonly (number | null)[])[]
}

/** Fields of a cell. Times in ms, changes and halves of intervals as shares. */
const FIELDS = ['p50', 'p99', 'p50Change', 'p99Change'] as const

/** `made`: output of `eldr simulate --drift … --json`. */
export function packDrift(made: DriftOptions & { readonly cells: readonly DriftFigures[] }): DriftResults {
  const { scenarios, traffics, policies, rates, seeds, requests, profile, topology } = made
  return {
    scenarios,
    traffics: traffics.map(({ name, domains }) => ({ name, domains })),
    policies,
    rates,
    seeds: seeds.length,
    requests,
    profile,
    topology,
    cells: made.cells.map(cell => [
      ...FIELDS.flatMap(field => [rounded(cell[field]?.mean), rounded(cell[field]?.half)]),
      rounded(cell.batch),
      rounded(cell.preemptions),
    ]),
  }
}

export function unpackDrift(results: DriftResults): DriftFigures[] {
  const { scenarios, traffics, rates, policies, seeds, cells } = results
  let next = 0
  return scenarios.flatMap(scenario =>
    traffics.flatMap(traffic =>
      rates.flatMap(rate =>
        policies.map((policy): DriftFigures => {
          const values = cells[next++]!
          const interval = (at: number): Interval | undefined =>
            values[at] === null ? undefined : { mean: values[at]!, half: values[at + 1] ?? NaN, count: seeds }
          const [p50, p99, p50Change, p99Change] = FIELDS.map((_, at) => interval(2 * at))
          return {
            scenario: scenario.name,
            traffic: traffic.name,
            rate,
            policy,
            p50: p50!,
            p99: p99!,
            p50Change,
            p99Change,
            batch: values[8]!,
            preemptions: values[9]!,
          }
        }),
      ),
    ),
  )
}

/** Four digits are more than the intervals allow. NaN, the interval of one seed, is null as in JSON. */
function rounded(value: number | null | undefined): number | null {
  return value === undefined || value === null || Number.isNaN(value) ? null : Number(value.toPrecision(4))
}
