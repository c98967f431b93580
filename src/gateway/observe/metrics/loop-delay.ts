/** How late the event loop is, over the last quarter of a minute or so: whoever reads it, and however often, sees the same. */
import { monitorEventLoopDelay } from 'node:perf_hooks'

const WINDOW_MS = 15_000
/** Node measures the time between two ticks of a timer; this much of it is the timer's own. */
const RESOLUTION_MS = 10

export class LoopDelay {
  readonly #histogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS })
  readonly #timer: NodeJS.Timeout
  #lastMs = 0

  constructor() {
    this.#histogram.enable()
    this.#timer = setInterval(() => {
      this.#lastMs = this.#nowMs()
      this.#histogram.reset()
    }, WINDOW_MS).unref()
  }

  p99Seconds(): number {
    return Math.max(this.#lastMs, this.#nowMs()) / 1000
  }

  close(): void {
    this.#histogram.disable()
    clearInterval(this.#timer)
  }

  #nowMs(): number {
    return Math.max(0, this.#histogram.percentile(99) / 1e6 - RESOLUTION_MS)
  }
}
