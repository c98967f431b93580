/** Changes the log level while the gateway runs, permanently or for a time. */
import type { LogLevel } from '../../config/settings.ts'
import type { Log } from './log.ts'

export interface LogLevelView {
  readonly level: LogLevel
  /** Level of the configuration. */
  readonly configured: LogLevel
  /** Time left until the configured level returns; absent if the change is permanent. */
  readonly leftMs?: number
}

export class LogLevelControl {
  readonly #log: Log
  readonly #configured: LogLevel
  readonly #changed: () => void
  #timer: NodeJS.Timeout | undefined
  #untilMs = 0

  /** Takes the current level of the log as the configured one. */
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
      leftMs,
    }
  }

  /** Replaces an earlier temporary level. */
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

  /** Switches to debug, or from debug back to the configured level. */
  toggleDebug(): LogLevelView {
    const back = this.#configured === 'debug' ? 'info' : this.#configured
    return this.set(this.#log.level === 'debug' ? back : 'debug')
  }

  close(): void {
    clearTimeout(this.#timer)
  }

  /** Logged before and after the change, so that it shows up whichever level is more verbose. */
  #change(level: LogLevel): void {
    const from = this.#log.level
    if (from === level) return
    this.#log.info({ from, to: level }, 'log level changed')
    this.#log.level = level
    this.#changed()
    if (from !== 'info' && from !== 'debug') this.#log.info({ from, to: level }, 'log level changed')
  }
}
