/**
 * Progress of a run on stderr: one overwritten line on a terminal, otherwise a new line every few seconds.
 */
import { duration, fixed, whole } from '../report/numbers.ts'
import type { Terminal } from '../report/terminal.ts'
import type { LoadProgress } from './run-load.ts'

const PLAIN_EVERY_SECONDS = 10

export interface LoadWatch {
  progress(now: LoadProgress): void
  clear(): void
}

/** `total`: number of requests; undefined if the run is limited by time. */
export function loadWatch(terminal: Terminal, what: string, total: number | undefined): LoadWatch {
  let before: LoadProgress = { seconds: 0, sent: 0, ended: 0, failed: 0, tokens: 0 }
  let shownSeconds = 0
  return {
    progress(now) {
      if (!terminal.live && now.seconds - shownSeconds < PLAIN_EVERY_SECONDS) return
      shownSeconds = now.seconds
      const perSecond = (now.tokens - before.tokens) / Math.max(1e-3, now.seconds - before.seconds)
      const parts = [
        duration(now.seconds * 1000),
        `sent ${whole(now.sent)}${total === undefined ? '' : `/${whole(total)}`}`,
        `in flight ${whole(now.sent - now.ended)}`,
        ...(now.failed > 0 ? [terminal.warn(`failed ${whole(now.failed)}`)] : []),
        `${fixed(perSecond, 0)} tokens/s`,
      ]
      before = now
      const line = `  ${what} … ${parts.join(' · ')}`
      terminal.write(
        terminal.live ? `\r\u001b[2K${line.slice(0, Math.max(0, terminal.width - 1))}` : `${line}\n`,
      )
    },
    clear() {
      if (terminal.live) terminal.write('\r\u001b[2K')
    },
  }
}
