/**
 * Steps of a profile that are decode and nothing else. The load of a profile is a closed loop on one engine:
 * when a request ends, the next one's prefill runs on that same engine. Steps are planned one ahead, so a
 * decode step before a prefill ends late by the prefill's time. Such steps have less than the full batch; a
 * decode engine whose prompts come from another one has none of them.
 */
import type { ResultOf, ServedSteps } from './result-file.ts'

type Profile = ResultOf<'profile'>['profile']

/** All steps if the result does not say how many requests its loads kept running. */
export function fullBatchSteps({ steps, cells }: Pick<Profile, 'steps' | 'cells'>): ServedSteps {
  const { cell } = steps
  if (cell === undefined || cells === undefined) return steps
  return stepsAt(
    steps,
    steps.ms.flatMap((_, i) => (steps.batch[i] === cells[cell[i]!]?.concurrency ? [i] : [])),
  )
}

function stepsAt(steps: ServedSteps, rows: readonly number[]): ServedSteps {
  const pick = (values: readonly number[]) => rows.map(i => values[i]!)
  const pickIf = (values: readonly number[] | undefined) => (values === undefined ? undefined : pick(values))
  return {
    ms: pick(steps.ms),
    batch: pick(steps.batch),
    experts: pick(steps.experts),
    contextTokens: pickIf(steps.contextTokens),
    cell: pickIf(steps.cell),
  }
}
