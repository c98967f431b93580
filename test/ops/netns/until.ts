/** Each poll asks several processes: the pause keeps polling from becoming the load. */
const PAUSE_MS = 25

/**
 * Polls a condition that has no event. Throws after the timeout. Failed polls are retried, since a machine
 * may be cut off. Returns how long it took.
 */
export async function until(
  what: string,
  holds: () => boolean | Promise<boolean>,
  timeoutMs = 40_000,
): Promise<number> {
  const startMs = performance.now()
  let last = ''
  for (;;) {
    try {
      if (await holds()) return performance.now() - startMs
    } catch (error) {
      last = `; the last poll failed: ${String(error)}`
    }
    if (performance.now() - startMs > timeoutMs)
      throw new Error(`timed out after ${timeoutMs} ms: ${what}${last}`)
    await new Promise(resolve => setTimeout(resolve, PAUSE_MS))
  }
}
