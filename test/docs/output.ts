/** Whether a program printed what a page shows of it. */
import { stripVTControlCharacters } from 'node:util'

/**
 * A line as it is compared: colours, bars and alignment away, every number the same number. A page shows one run's figures, and another
 * run has others; the words, the columns and their order must be the same.
 */
export function plainLine(line: string): string {
  return stripVTControlCharacters(line)
    .replaceAll(/[▀-▟]+/g, '')
    .replaceAll(/(?:[−+±-]\s?)?\d+(?:[.,]\d+)*/g, '#')
    .replaceAll(/\s+/g, ' ')
    .replaceAll(/(?:# ?)+#/g, '#')
    .trim()
}

/** Lines that were to be printed and were not; `…` in one stands for anything. */
export function missingLines(expected: string, printed: string): string[] {
  const there = new Set(printed.split(/[\r\n]+/).map(plainLine))
  return expected.split('\n').filter(line => {
    const plain = plainLine(line)
    if (plain === '' || plain === '…' || there.has(plain)) return false
    if (!plain.includes('…')) return true
    const pattern = new RegExp(`^${plain.split('…').map(escaped).join('.*')}$`)
    return ![...there].some(one => pattern.test(one))
  })
}

function escaped(text: string): string {
  return text.replaceAll(/[$()*+.?[\\\]^{|}]/g, '\\$&')
}
