/**
 * A vLLM server with fewer ranks than configured responds 400 to every request for the others. The client is
 * not to blame, and the response is immediate: the missing rank would look like the least loaded worker and
 * attract nearly all requests.
 */

/** These responses are short. */
const MAX_BYTES = 4_096

/**
 * Recognised by its first words, which no client can forge: an error that quotes the request starts
 * differently.
 */
export function isWrongRank(dpRank: number | undefined, status: number, body: Buffer): boolean {
  if (dpRank === undefined || status !== 400 || body.length > MAX_BYTES) return false
  return messageIn(body)?.startsWith(`data_parallel_rank ${dpRank} is out of range`) === true
}

export const wrongRankWords = (dpRank: number | undefined): string =>
  `the server has no data-parallel rank ${dpRank}: is the configured number of ranks too high?`

function messageIn(body: Buffer): string | undefined {
  try {
    const answer = JSON.parse(body.toString()) as { error?: { message?: unknown }; message?: unknown } | null
    const message = answer?.error?.message ?? answer?.message
    return typeof message === 'string' ? message : undefined
  } catch {
    return undefined
  }
}
