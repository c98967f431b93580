/**
 * Holds changes back while the gateway is being replaced: the successor starts with the state as it is then,
 * and a later change would be lost.
 */
import { Refusal } from '../../http/refusal.ts'

export class ChangeGate {
  #running = 0
  #frozen = false
  #idle = () => {}

  /** Runs a change, or throws a Refusal while changes are held back. */
  async run<T>(change: () => T | Promise<T>): Promise<T> {
    if (this.#frozen) throw new Refusal('ELDR_REPLACING', { retryAfterSeconds: 1 })
    this.#running++
    try {
      return await change()
    } finally {
      if (--this.#running === 0) this.#idle()
    }
  }

  /** Resolves when the changes that are running have ended. */
  freeze(): Promise<void> {
    this.#frozen = true
    return new Promise(resolve => {
      if (this.#running === 0) resolve()
      else this.#idle = resolve
    })
  }

  /** The gateway continues to serve. */
  thaw(): void {
    this.#frozen = false
  }
}
