/** How much is logged, changed while the gateway runs: for good, or for a while. */
import type { LogLevel } from '../../config/settings.ts'
import type { Log } from './log.ts'

export interface LogLevelView {
  readonly level: LogLevel
  /** As the settings have it. */
  readonly configured: LogLevel
  /** Until it is again as they have it, where that is to come by itself. */
  readonly leftMs?: number
}

export class LogLevelControl {
  readonly #log: Log
  readonly #configured: LogLevel
  readonly #changed: () => void
  #timer: NodeJS.Timeout | undefined
  #untilMs = 0

  /** The log's level is the configured one. */
  constructor(log: Log, changed: () => void = () => {}) {
    this.#log = log
    this.#changed = changed
    this.#configured = log.level as LogLevel
  }

  view(): LogLevelView {
    const leftMs =
      this.#timer === undefined ? undefined : Math.max(0, Math.round(this.#untilMs - performance.now()))
    return {
      level: this.#log.level as LogLevel,
      configured: this.#configured,
      ...(leftMs !== undefined && { leftMs }),
    }
  }

  /** The last word counts: one for a while that comes before is forgotten. */
  set(level: LogLevel, forMs?: number): LogLevelView {
    clearTimeout(this.#timer)
    this.#timer = undefined
    if (forMs !== undefined) {
      this.#untilMs = performance.now() + forMs
      this.#timer = setTimeout(() => this.set(this.#configured), forMs).unref()
    }
    this.#change(level)
    return this.view()
  }

  /** Debug, and from there back. */
  toggleDebug(): LogLevelView {
    const back = this.#configured === 'debug' ? 'info' : this.#configured
    return this.set(this.#log.level === 'debug' ? back : 'debug')
  }

  close(): void {
    clearTimeout(this.#timer)
  }

  /** Said at whichever of the two levels says more, or one who makes the log quiet would not be seen to. */
  #change(level: LogLevel): void {
    const from = this.#log.level
    if (from === level) return
    this.#log.info({ from, to: level }, 'log level')
    this.#log.level = level
    this.#changed()
    if (from !== 'info' && from !== 'debug') this.#log.info({ from, to: level }, 'log level')
  }
}
