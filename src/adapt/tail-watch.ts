/**
 * Whether the tail of TPOT is worse after a swap than before it, beyond its noise. The measure is the share
 * of streams that are slower than the p99 of those before. Streams of one moment share batches, so that
 * slow ones come together: shares are taken over blocks of consecutive streams, and their spread is the
 * noise.
 */
export interface Tail {
  readonly before: number
  readonly after: number
  readonly isWorse: boolean
}

const BLOCK = 25
/** Blocks on both sides before the tail is judged. */
const MIN_BLOCKS = 6
/** Difference of the mean shares in standard errors. */
const BEYOND_NOISE = 3.5
/** Numbers of streams after a swap at which the tails are compared: each further look may err once more. */
export const LOOKS = [150, 300, 600, 1_200] as const

/** Times in order of their ends. Undefined while there are too few. */
export function compareTails(before: readonly number[], after: readonly number[]): Tail | undefined {
  if (Math.min(before.length, after.length) < MIN_BLOCKS * BLOCK) return undefined
  const limit = p99Of(before)
  const [old, fresh] = [sharesAbove(before, limit), sharesAbove(after, limit)]
  const error = Math.sqrt(squaredError(old) + squaredError(fresh))
  return {
    before: limit,
    after: p99Of(after),
    isWorse: mean(fresh) - mean(old) > BEYOND_NOISE * error,
  }
}

export function p99Of(values: readonly number[]): number {
  const sorted = Float64Array.from(values).sort()
  return sorted[Math.min(sorted.length - 1, Math.floor(0.99 * sorted.length))]!
}

function sharesAbove(values: readonly number[], limit: number): number[] {
  return Array.from({ length: Math.floor(values.length / BLOCK) }, (_, block) => {
    const part = values.slice(block * BLOCK, (block + 1) * BLOCK)
    return part.filter(value => value > limit).length / BLOCK
  })
}

const mean = (values: readonly number[]) => values.reduce((a, b) => a + b, 0) / values.length

/**
 * Squared standard error of the mean. Blocks without a slow stream have no spread: then it is that of one
 * slow stream in all of them.
 */
function squaredError(values: readonly number[]): number {
  const centre = mean(values)
  const variance = values.reduce((sum, value) => sum + (value - centre) ** 2, 0) / (values.length - 1)
  return Math.max(variance / values.length, 1 / (BLOCK * values.length) ** 2)
}
