import { describe, expect, it } from 'vitest'
import type { Terminal } from '../report/terminal.ts'
import { Screen } from './screen.ts'

const CODES = new RegExp(`(${String.fromCharCode(27)}\\[\\d+[AJ]|\n)`)
const same = (text: string) => text

/** A terminal that supports the only used codes: cursor up and erase. */
function terminal(live: boolean, width = 40) {
  const lines = ['']
  const term: Terminal = {
    width,
    live,
    bold: same,
    dim: same,
    accent: same,
    warn: same,
    write(text) {
      for (const part of text.split(CODES)) {
        const up = /\[(\d+)A/.exec(part)
        if (up) lines.splice(lines.length - 1 - Number(up[1]), Infinity, '')
        else if (part === '\n') lines.push('')
        else if (!part.startsWith('\u001b')) lines[lines.length - 1] += part
      }
    },
  }
  return { term, shown: () => lines.slice(0, -1) }
}

describe('Screen', () => {
  it('overwrites the previous block, with a log above it', () => {
    const { term, shown } = terminal(true)
    const screen = new Screen(term, () => 24)
    screen.log('begun')
    screen.draw(['a', 'b', 'c'])
    screen.draw(['d', 'e'])
    screen.log('something happened')
    expect(shown()).toEqual(['begun', 'something happened', 'd', 'e'])
    screen.draw(['f'])
    screen.leave()
    screen.log('over')
    expect(shown()).toEqual(['begun', 'something happened', 'f', 'over'])
  })

  it('leaves out lines that would wrap or scroll away, since they cannot be overwritten', () => {
    const { term, shown } = terminal(true, 5)
    const screen = new Screen(term, () => 3)
    for (let i = 0; i < 3; i++) screen.draw(['1', 'too wide', '3', '4'])
    expect(shown()).toEqual(['1'])
  })

  it('prints only the log if nothing can be overwritten', () => {
    const { term, shown } = terminal(false)
    const screen = new Screen(term, () => 24)
    screen.draw(['a'])
    screen.log('b')
    expect(shown()).toEqual(['b'])
  })
})
