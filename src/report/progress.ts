import type { StageWatcher } from '../fit/stages.ts'
import { duration } from './numbers.ts'
import { type Terminal } from './terminal.ts'

/**
 * Shows a long job on stderr: on a terminal one line that is overwritten, elsewhere one line a stage when it ends. Silent when told so.
 */
export function stageProgress(terminal: Terminal, quiet: boolean): StageWatcher & { clear?(): void } {
  if (quiet) return {}
  let lastMs = 0
  const overwrite = (text: string) => terminal.write(`\r\u001b[2K${text.slice(0, Math.max(0, terminal.width - 1))}`)
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
