import { shutdownSignal } from './shutdown-signal.ts'

/** Abort reason: the signal that stopped the work. */
class Stopped extends Error {
  readonly signal: NodeJS.Signals

  constructor(signal: NodeJS.Signals) {
    super(signal)
    this.signal = signal
  }
}

/**
 * Runs work that cleans up when its AbortSignal fires. Ctrl-C aborts it; then `onStopped` informs the user
 * and the process ends by the same signal, so that its parent sees why. A second signal does not wait for the
 * work.
 */
export async function stoppable<T>(
  work: (stop: AbortSignal) => Promise<T>,
  onStopped: () => void = () => undefined,
): Promise<T> {
  const stop = new AbortController()
  void shutdownSignal({ force: endBy }).then(signal => stop.abort(new Stopped(signal)))
  try {
    return await work(stop.signal)
  } catch (error) {
    if (!(error instanceof Stopped)) throw error
    onStopped()
    endBy(error.signal)
    return new Promise<never>(() => undefined)
  }
}

/** Not process.exit(): that waits for threads blocked on a disk or network read. */
function endBy(signal: NodeJS.Signals): void {
  process.removeAllListeners(signal)
  process.kill(process.pid, signal)
}
