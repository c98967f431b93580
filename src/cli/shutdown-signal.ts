/**
 * SIGHUP keeps its default action: it ends the program with its terminal, unless the user started it with
 * `nohup`.
 */
const SIGNALS = ['SIGINT', 'SIGTERM'] as const
/** The exit code that shells use for a program ended by Ctrl-C. */
const FORCED = 130
/**
 * npm forwards Ctrl-C to a program that also received it from the terminal: a signal this soon after the
 * first is a repeat.
 */
const REPEAT_MS = 1_000

/**
 * Resolves with the first signal that asks the program to end. A second one calls `force`; repeats of the
 * first do not count.
 */
export function shutdownSignal({
  force = () => process.exit(FORCED),
  repeatMs = REPEAT_MS,
}: {
  readonly force?: (name: NodeJS.Signals) => void
  readonly repeatMs?: number
} = {}): Promise<NodeJS.Signals> {
  return new Promise(resolve => {
    let firstMs: number | undefined
    for (const name of SIGNALS)
      process.on(name, () => {
        if (firstMs === undefined) resolve(name)
        else if (performance.now() - firstMs >= repeatMs) force(name)
        firstMs ??= performance.now()
      })
  })
}
