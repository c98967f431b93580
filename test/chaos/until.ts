/** Each poll asks several processes: the pause keeps polling from becoming the load. */
const PAUSE_MS = 100

/** Polls a condition that has no event, until there is no reason against it. Throws with the last reason. */
export async function until(
  what: string,
  whyNot: () => Promise<string | undefined>,
  timeoutMs: number,
): Promise<void> {
  const endMs = performance.now() + timeoutMs
  for (;;) {
    const why = await whyNot().catch((error: Error) => error.message)
    if (why === undefined) return
    if (performance.now() > endMs) throw new Error(`${what}: not within ${timeoutMs} ms: ${why}`)
    await new Promise(resolve => setTimeout(resolve, PAUSE_MS))
  }
}
