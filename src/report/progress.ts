import type { StageWatcher } from '../fit/stages.ts'
import { duration, fixed, whole } from './numbers.ts'
import { type Terminal } from './terminal.ts'

/**
 * Shows a long job on stderr: on a terminal one line that is overwritten, elsewhere one line a stage when it ends. Silent when told so.
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
      // The eye needs some ten a second; the work may report a thousand.
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
  /** `before`: of `done`, what was done before this run began and says nothing of its rate. */
  progress(done: number, total: number, before: number, more: readonly string[]): void
  /** A line of its own, above the one that is overwritten. */
  say(text: string): void
  clear(): void
}

/** Many alike things, one after the other: how many, how fast, how long yet. On a terminal a line that is overwritten, else one now and then. */
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
