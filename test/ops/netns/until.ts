/** Polls for a state. Each check asks several processes, so it pauses between checks to add little load. */
const PAUSE_MS = 25

/** Gives up loudly. Questions that get no answer are asked again: a machine may be cut off. @returns how long it took. */
export async function until(
  what: string,
  holds: () => boolean | Promise<boolean>,
  patienceMs = 40_000,
): Promise<number> {
  const startMs = performance.now()
  let last = ''
  for (;;) {
    try {
      if (await holds()) return performance.now() - startMs
    } catch (error) {
      last = `; the last look failed: ${String(error)}`
    }
    if (performance.now() - startMs > patienceMs)
      throw new Error(`not within ${patienceMs} ms: ${what}${last}`)
    await new Promise(resolve => setTimeout(resolve, PAUSE_MS))
  }
}
