/** Predictions of served runs: the output of `eldr simulate --json`, as far as it is compared. */
import { z } from 'zod'

const quantiles = z.object({ mean: z.number(), p50: z.number(), p99: z.number() })
const schema = z.object({
  topology: z.string(),
  profile: z.string(),
  points: z.array(
    z.object({
      variant: z.string(),
      rate: z.number(),
      runs: z.array(
        z.object({
          seed: z.number(),
          tpotMs: quantiles,
          itlMs: quantiles,
          batch: z.number(),
          activeByBatch: z.array(z.object({ batch: z.number(), steps: z.number(), active: z.number() })),
        }),
      ),
    }),
  ),
})

export type Prediction = z.infer<typeof schema>

export interface PredictedRun {
  readonly policy: string
  /** The seed: runs of one seed had the same requests. */
  readonly round: number
  readonly tpotMs: { readonly mean: number; readonly p50: number; readonly p99: number }
  readonly itlMs: { readonly mean: number; readonly p50: number; readonly p99: number }
  /** Means over the steps, as the engines count them. */
  readonly together: { readonly batch: number; readonly experts: number }
}

/** Throws with the file and the field that is wrong. */
export function parsePrediction(file: string, value: unknown): Prediction {
  const parsed = schema.safeParse(value)
  if (parsed.success) return parsed.data
  const [first] = parsed.error.issues
  throw new Error(`${file}: ${first!.path.join('.')}: ${first!.message}`)
}

/** `union` is served with costs that it learns, which the simulator calls `union@learnt`. */
const policyOf = (variant: string): string => (variant === 'union@learnt' ? 'union' : variant)

/** Runs at one rate. */
export function predictedRuns({ points }: Prediction, rate: number): PredictedRun[] {
  return points
    .filter(point => point.rate === rate)
    .flatMap(({ variant, runs }) =>
      runs.map(({ seed, tpotMs, itlMs, activeByBatch }) => {
        const steps = activeByBatch.reduce((sum, one) => sum + one.steps, 0)
        const mean = (of: (one: { batch: number; active: number }) => number) =>
          activeByBatch.reduce((sum, one) => sum + one.steps * of(one), 0) / steps
        const together = { batch: mean(one => one.batch), experts: mean(one => one.active) }
        return { policy: policyOf(variant), round: seed, tpotMs, itlMs, together }
      }),
    )
}
