/** Not SIGHUP: whoever wants to outlive the terminal (`nohup`) may, and otherwise the program ends of it, and its processes with it. */
const SIGNALS = ['SIGINT', 'SIGTERM'] as const
/** What a shell gives for a program that Ctrl-C ended. */
const FORCED = 130
/** npm passes Ctrl-C on to a program that the terminal has told already: one that follows so closely is the same one. */
const SAME_MS = 1_000

/** Resolves with the first signal that asks the program to end; a later one ends it there and then, and its processes with it unless `force` says otherwise. */
export function firstSignal(
  force: (name: NodeJS.Signals) => void = () => process.exit(FORCED),
): Promise<NodeJS.Signals> {
  return new Promise(resolve => {
    let toldMs: number | undefined
    for (const name of SIGNALS)
      process.on(name, () => {
        if (toldMs === undefined) resolve(name)
        else if (performance.now() - toldMs > SAME_MS) force(name)
        toldMs ??= performance.now()
      })
  })
}
