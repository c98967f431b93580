/**
 * Passes a stream on in whole events, so that an error event can always follow and be read. An error event of
 * the worker itself is held back, with everything after it.
 */
import type { StreamEvents } from './response-rules.ts'
import { StreamWatch } from './stream-watch.ts'

/** A larger event is passed on in pieces. */
const MAX_EVENT_BYTES = 65_536

export class WholeEvents implements StreamEvents {
  readonly endsUnannounced = false
  amidEvent = false
  readonly #watch = new StreamWatch()
  readonly #maxEventBytes: number
  #kept: Buffer[] = []
  #keptBytes = 0

  constructor(maxEventBytes = MAX_EVENT_BYTES) {
    this.#maxEventBytes = maxEventBytes
  }

  get events(): number {
    return this.#watch.events
  }

  get done(): boolean {
    return this.#watch.done
  }

  get failed(): boolean {
    return this.#watch.failed
  }

  get started(): boolean {
    return this.#watch.events > 0 || this.#watch.done || this.amidEvent
  }

  /** Nearly always a chunk is one event, and is passed on unchanged. */
  push(chunk: Buffer): Buffer | undefined {
    const watch = this.#watch
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
    if (this.#keptBytes < this.#maxEventBytes) return undefined
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
