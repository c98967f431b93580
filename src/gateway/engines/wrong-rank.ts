/**
 * A server that has fewer engines than it was said to have answers 400 to every request for the others. That is no fault of the client,
 * and it comes at once: the rank would seem to be the least loaded, and get nearly everything.
 */

/** Answers of that kind are short. */
const MOST_BYTES = 4_096

/** Told by its first words, which no client can put there: an error about what it sent may quote that, but begins otherwise. */
export function isWrongRank(dpRank: number | undefined, status: number, body: Buffer): boolean {
  if (dpRank === undefined || status !== 400 || body.length > MOST_BYTES) return false
  return messageIn(body)?.startsWith(`data_parallel_rank ${dpRank} is out of range`) === true
}

export const wrongRankWords = (dpRank: number | undefined): string =>
  `it has no data-parallel rank ${dpRank}: were more given than it was started with?`

function messageIn(body: Buffer): string | undefined {
  try {
    const answer = JSON.parse(body.toString()) as { error?: { message?: unknown }; message?: unknown } | null
    const message = answer?.error?.message ?? answer?.message
    return typeof message === 'string' ? message : undefined
  } catch {
    return undefined
  }
}
