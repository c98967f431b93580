/**
 * Lets a stream pass in whole events: whatever happens to its worker, an error event can follow what has passed, and be read. An error
 * event of the worker's own does not pass, nor what comes after it.
 */
import { StreamWatch } from './stream-watch.ts'

/** An event that is larger passes in pieces. */
const MOST_EVENT_BYTES = 65_536

export class WholeEvents {
  readonly watch = new StreamWatch()
  /** What has passed ends amid an event. */
  amidEvent = false
  #kept: Buffer[] = []
  #keptBytes = 0

  /** What can pass now, if anything. Nearly always a chunk is one event, and passes as it is. */
  push(chunk: Buffer): Buffer | undefined {
    const { watch } = this
    const whole = watch.push(chunk)
    if (whole === chunk.length && this.#keptBytes === 0) {
      this.amidEvent = false
      return chunk
    }
    if (whole > 0) {
      this.#keep(chunk.subarray(0, whole))
      this.amidEvent = false
      const passed = this.#take()
      if (!watch.failed && whole < chunk.length) this.#keep(chunk.subarray(whole))
      return passed
    }
    if (watch.failed) return undefined
    this.#keep(chunk)
    if (this.#keptBytes < MOST_EVENT_BYTES) return undefined
    this.amidEvent = true
    return this.#take()
  }

  #keep(chunk: Buffer): void {
    this.#kept.push(chunk)
    this.#keptBytes += chunk.length
  }

  #take(): Buffer {
    const bytes = this.#kept.length === 1 ? this.#kept[0]! : Buffer.concat(this.#kept)
    this.#kept = []
    this.#keptBytes = 0
    return bytes
  }
}
