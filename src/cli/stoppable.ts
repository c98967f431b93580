import { firstSignal } from './first-signal.ts'

/** Why work was called off. */
class Stopped extends Error {
  readonly signal: NodeJS.Signals

  constructor(signal: NodeJS.Signals) {
    super(signal)
    this.signal = signal
  }
}

/**
 * Work that cleans up by itself when its signal aborts: Ctrl-C aborts it, `say` tells what that means, and whoever stopped it sees the process
 * end of that signal. A second one does not wait for the work.
 */
export async function stoppable<T>(
  work: (stop: AbortSignal) => Promise<T>,
  say: () => void = () => undefined,
): Promise<T> {
  const stop = new AbortController()
  void firstSignal(endBy).then(signal => stop.abort(new Stopped(signal)))
  try {
    return await work(stop.signal)
  } catch (error) {
    if (!(error instanceof Stopped)) throw error
    say()
    endBy(error.signal)
    return new Promise<never>(() => undefined)
  }
}

/** Not process.exit(), which waits for threads that read from a disk or a network that does not answer. */
function endBy(signal: NodeJS.Signals): void {
  process.removeAllListeners(signal)
  process.kill(process.pid, signal)
}
