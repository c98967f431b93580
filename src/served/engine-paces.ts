/** Steps of the fullest and of the emptiest engine under a policy. */
import type { ServedRun } from './result-file.ts'

export interface EnginePace {
  readonly batch: number
  /** Ascending. */
  readonly ms: Float64Array
}

interface Step {
  readonly batch: number
  readonly ms: number
}

/** Which engine is the fullest is judged in each run; the steps are those of all runs. */
export function enginePaces(runs: readonly Pick<ServedRun, 'steps'>[]): {
  readonly fullest: EnginePace
  readonly emptiest: EnginePace
} {
  const [fullest, emptiest]: [Step[], Step[]] = [[], []]
  for (const { steps } of runs) {
    if (steps?.worker === undefined || steps.worker.length === 0) continue
    const { worker, batch, ms } = steps
    const engines = [...new Set(worker)]
      .map(engine => ms.flatMap((one, at) => (worker[at] === engine ? [{ ms: one, batch: batch[at]! }] : [])))
      .toSorted((a, b) => meanBatch(a) - meanBatch(b))
    emptiest.push(...engines[0]!)
    fullest.push(...engines.at(-1)!)
  }
  return { fullest: paceOf(fullest), emptiest: paceOf(emptiest) }
}

const paceOf = (steps: readonly Step[]): EnginePace => ({
  batch: meanBatch(steps),
  ms: Float64Array.from(steps, ({ ms }) => ms).sort(),
})

const meanBatch = (steps: readonly Step[]): number =>
  steps.reduce((sum, { batch }) => sum + batch, 0) / steps.length
