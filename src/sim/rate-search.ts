/**
 * Rates at which decode workers run a given mean batch: figures are compared at equal batches, since the same
 * rate fills a trace of short outputs less than one of long ones. A secant on the logarithms of rate and
 * batch, which are almost linear; every load is searched independently, so its result does not depend on the
 * others.
 */
import type { Pool } from './parallel.ts'
import type { SimulationResult } from './result.ts'
import type { SweepJob } from './sweep.ts'

export interface LoadWanted<Setting = unknown> {
  readonly setting: Setting
  /** The policy that must have this batch. */
  readonly variant: string
  /** As in `SimulationResult.batch`. */
  readonly batch: number
  /** Requests per second to start with. */
  readonly guess: number
}

export interface LoadFound {
  readonly rate: number
  /** Measured at that rate in one run: close to the requested one, or as close as the search came. */
  readonly batch: number
}

export interface RateSearch<Setting> {
  /** Its runs should be as long as the later ones: a short run ends before the batches are full. */
  readonly pool: Pool<SweepJob<Setting>, SimulationResult>
  readonly seed: number
  /** Loads that are done in this round, of all. */
  readonly onProgress?: (done: number, of: number) => void
}

/** Accepted relative difference of batches: seeds differ by as much. */
const NEAR = 0.02
const MAX_TRIES = 6
/** Largest step: a batch grows faster than the rate, and not at all if prefill is saturated. */
const LARGEST_STEP = 2
/** d log batch / d log rate, until two tries determine it. */
const FIRST_SLOPE = 1.5

/** One list of runs per round of tries; most loads take three. */
export async function findRates<Setting>(
  wanted: readonly LoadWanted<Setting>[],
  { pool, seed, onProgress }: RateSearch<Setting>,
): Promise<LoadFound[]> {
  const tries = wanted.map((): LoadFound[] => [])
  for (let round = 0; round < MAX_TRIES; round++) {
    const open = wanted.flatMap((load, at) => {
      const rate = nextRate(load, tries[at]!)
      return rate === undefined
        ? []
        : [{ at, job: { variant: load.variant, setting: load.setting, rate, seed } }]
    })
    const found = wanted.length - open.length
    const results = await pool.run(
      open.map(({ job }) => job),
      done => onProgress?.(found + done, wanted.length),
    )
    open.forEach(({ at, job }, n) => tries[at]!.push({ rate: job.rate, batch: results[n]!.batch }))
  }
  return wanted.map((load, at) => nearest(load.batch, tries[at]!)[0]!)
}

/** Undefined if the last try is close enough, or if the next was tried already. */
export function nextRate(
  { batch, guess }: Pick<LoadWanted, 'batch' | 'guess'>,
  tries: readonly LoadFound[],
): number | undefined {
  const [best, second] = nearest(batch, tries)
  if (best === undefined) return readable(guess)
  const missing = Math.log(batch / best.batch)
  if (Math.abs(missing) < NEAR) return undefined
  const step = Math.max(
    -Math.log(LARGEST_STEP),
    Math.min(Math.log(LARGEST_STEP), missing / slope(best, second)),
  )
  const rate = readable(best.rate * Math.exp(step))
  return tries.some(tried => tried.rate === rate) ? undefined : rate
}

function slope(a: LoadFound, b: LoadFound | undefined): number {
  const found = b === undefined ? NaN : Math.log(a.batch / b.batch) / Math.log(a.rate / b.rate)
  return found > 0.25 && found < 8 ? found : FIRST_SLOPE // beyond this, noise dominates
}

function nearest(batch: number, tries: readonly LoadFound[]): LoadFound[] {
  const distance = ({ batch: seen }: LoadFound) => Math.abs(Math.log(seen / batch))
  return tries.toSorted((a, b) => distance(a) - distance(b))
}

/** Three digits: rates appear in tables and on command lines. */
function readable(rate: number): number {
  return Number(rate.toPrecision(3))
}
