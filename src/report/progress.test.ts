import { describe, expect, it } from 'vitest'
import { rateProgress } from './progress.ts'
import type { Terminal } from './terminal.ts'

function made(live: boolean, width = 80) {
  const written: string[] = []
  const plain = (text: string) => text
  const terminal: Terminal = {
    width,
    live,
    bold: plain,
    dim: plain,
    accent: plain,
    warn: plain,
    write: text => void written.push(text),
  }
  let now = 1_000
  const watch = rateProgress(terminal, 'calibrate', () => now)
  return { watch, at: (ms: number) => void (now = 1_000 + ms), taken: () => written.splice(0).join('') }
}

describe('the progress of many items', () => {
  it('shows count, rate and remaining time; items from before the start do not count for the rate', () => {
    const { watch, at, taken } = made(false)
    watch.progress(400, 1000, 400, [])
    expect(taken()).toBe('  calibrate … 400/1,000\n')
    at(10_000)
    watch.progress(420, 1000, 400, ['skipped 3'])
    expect(taken()).toBe('  calibrate … 420/1,000 · 2.0/s · 4\u00a0min 50\u00a0s left · skipped 3\n')
    at(20_000)
    watch.progress(1000, 1000, 400, [])
    expect(taken()).toBe('  calibrate … 1,000/1,000 · 30.0/s\n')
  })

  it('is one overwritten line that fits a terminal, and an occasional line elsewhere', () => {
    const [live, plain] = [made(true, 20), made(false)]
    for (const { watch, at } of [live, plain])
      for (let ms = 0; ms <= 1_000; ms += 10) {
        at(ms)
        watch.progress(ms / 10, 1000, 0, [])
      }
    const frames = live.taken().split('\r\u001b[2K')
    expect(frames.length - 1).toBe(13)
    expect(Math.max(...frames.map(frame => frame.length))).toBe(19)
    expect(plain.taken().split('\n')).toHaveLength(2)
    live.watch.say('line 7 skipped')
    live.watch.clear()
    expect(live.taken()).toBe('\r\u001b[2K  line 7 skipped\n\r\u001b[2K')
  })
})
