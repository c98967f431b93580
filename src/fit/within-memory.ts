import { EldrError } from '../errors.ts'
import { KernelTooLarge } from '../math/kernel.ts'

/**
 * Entries of a matrix of requests × workers, about 24 bytes each: beyond this, clustering takes gigabytes.
 */
const MAX_COSTS = 2 ** 26
/** Maximum dimensions for which a flat unit vector keeps its length in fixed point. */
const MAX_DIMENSIONS = 2 ** 20

export function checkFits(file: string, requests: number, workers: number, dimensions: number): void {
  if (requests * workers > MAX_COSTS)
    throw tooLarge(file, `${requests} requests × ${workers} workers`, `at most ${MAX_COSTS} in all`)
  if (dimensions > MAX_DIMENSIONS)
    throw tooLarge(file, `signatures of ${dimensions} dimensions`, `at most ${MAX_DIMENSIONS}`)
}

/** Runs the work; an allocation failure becomes an error that says what to do. */
export async function withinMemory<T>(file: string, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    const noRoom =
      error instanceof RangeError &&
      /allocation failed|Invalid (typed )?array (buffer )?length/i.test(error.message)
    if (error instanceof KernelTooLarge || noRoom) throw tooLarge(file, error.message)
    throw error
  }
}

function tooLarge(file: string, found: string, expected?: string): EldrError {
  return new EldrError('ELDR_FIT_TOO_LARGE', { file, found, expected })
}
