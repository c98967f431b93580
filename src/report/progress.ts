import type { StageWatcher } from '../fit/stages.ts'
import { duration, fixed, whole } from './numbers.ts'
import { type Terminal } from './terminal.ts'

/**
 * Progress of a long job on stderr: on a terminal one line that is overwritten, elsewhere one line per
 * finished stage.
 */
export function stageProgress(terminal: Terminal, quiet: boolean): StageWatcher & { clear?(): void } {
  if (quiet) return {}
  let lastMs = 0
  const overwrite = (text: string) =>
    terminal.write(`\r\u001b[2K${text.slice(0, Math.max(0, terminal.width - 1))}`)
  return {
    started(name: string) {
      if (terminal.live) overwrite(`  ${name} …`)
    },
    progress(what: string, done: number, total: number) {
      // Ten updates per second are enough; jobs may report a thousand.
      const now = performance.now()
      if (!terminal.live || now - lastMs < 80) return
      lastMs = now
      overwrite(`  ${what} … ${done}/${total}`)
    },
    clear() {
      if (terminal.live) terminal.write('\r\u001b[2K')
    },
    ended(name: string, ms: number) {
      if (terminal.live) terminal.write('\r\u001b[2K')
      terminal.write(`  ${terminal.dim(`${name.padEnd(18)} ${duration(ms).padStart(8)}`)}\n`)
    },
  }
}

const PLAIN_EVERY_MS = 10_000
const LIVE_EVERY_MS = 80

export interface RateWatch {
  /** `before`: items of `done` that were finished before this run and do not count for its rate. */
  progress(done: number, total: number, before: number, more: readonly string[]): void
  /** A permanent line above the overwritten one. */
  say(text: string): void
  clear(): void
}

/**
 * Progress of many similar items: count, rate, remaining time. On a terminal one overwritten line, elsewhere
 * an occasional line.
 */
export function rateProgress(
  terminal: Terminal,
  what: string,
  nowMs: () => number = () => performance.now(),
): RateWatch {
  const startMs = nowMs()
  let shownMs = -Infinity
  const clear = () => {
    if (terminal.live) terminal.write('\r\u001b[2K')
  }
  return {
    progress(done, total, before, more) {
      const now = nowMs()
      if (now - shownMs < (terminal.live ? LIVE_EVERY_MS : PLAIN_EVERY_MS) && done < total) return
      shownMs = now
      const perMs = (done - before) / Math.max(1, now - startMs)
      const rate =
        perMs > 0
          ? [`${fixed(1000 * perMs, perMs < 0.001 ? 2 : 1)}/s`, `${duration((total - done) / perMs)} left`]
          : []
      const line = `  ${[`${what} … ${whole(done)}/${whole(total)}`, ...(done < total ? rate : rate.slice(0, 1)), ...more].join(' · ')}`
      terminal.write(
        terminal.live ? `\r\u001b[2K${line.slice(0, Math.max(0, terminal.width - 1))}` : `${line}\n`,
      )
    },
    say(text) {
      clear()
      terminal.write(`  ${text}\n`)
    },
    clear,
  }
}
