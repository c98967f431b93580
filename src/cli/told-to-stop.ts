/** What a shell gives for a program that Ctrl-C ended. */
const FORCED = 130

/** Resolves with the first signal that asks the program to end; a second one ends it there and then. */
export function toldToStop(): Promise<NodeJS.Signals> {
  return new Promise(resolve => {
    let told = false
    for (const name of ['SIGTERM', 'SIGINT'] as const)
      process.on(name, () => {
        if (told) process.exit(FORCED)
        told = true
        resolve(name)
      })
  })
}
