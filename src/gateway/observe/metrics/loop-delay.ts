/** Event loop delay over the last 15 to 30 seconds. Reading it changes nothing, so several readers agree. */
import { monitorEventLoopDelay } from 'node:perf_hooks'

const WINDOW_MS = 15_000
/** Node measures the time between two timer ticks, which includes the timer's own interval. */
const RESOLUTION_MS = 10

export class LoopDelay {
  readonly #histogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS })
  readonly #timer: NodeJS.Timeout
  #lastMs = 0

  constructor() {
    this.#histogram.enable()
    this.#timer = setInterval(() => {
      this.#lastMs = this.#currentMs()
      this.#histogram.reset()
    }, WINDOW_MS).unref()
  }

  p99Seconds(): number {
    return Math.max(this.#lastMs, this.#currentMs()) / 1000
  }

  close(): void {
    this.#histogram.disable()
    clearInterval(this.#timer)
  }

  #currentMs(): number {
    return Math.max(0, this.#histogram.percentile(99) / 1e6 - RESOLUTION_MS)
  }
}
