/** Compares the output of a program with what a page shows. */
import { stripVTControlCharacters } from 'node:util'

/**
 * Normalizes a line for the comparison: no colors, bars or alignment, and every number becomes `#`. Numbers
 * differ from run to run; words, columns and their order must be the same.
 */
export function plainLine(line: string): string {
  return stripVTControlCharacters(line)
    .replaceAll(/[▀-▟]+/g, '')
    .replaceAll(/(?:[−+±-]\s?)?\d+(?:[.,]\d+)*/g, '#')
    .replaceAll(/\s+/g, ' ')
    .replaceAll(/(?:# ?)+#/g, '#')
    .trim()
}

/** Expected lines that were not printed; `…` in a line matches anything. */
export function missingLines(expected: string, printed: string): string[] {
  const lines = new Set(printed.split(/[\r\n]+/).map(plainLine))
  return expected.split('\n').filter(line => {
    const plain = plainLine(line)
    if (plain === '' || plain === '…' || lines.has(plain)) return false
    if (!plain.includes('…')) return true
    const pattern = new RegExp(`^${plain.split('…').map(escaped).join('.*')}$`)
    return ![...lines].some(one => pattern.test(one))
  })
}

function escaped(text: string): string {
  return text.replaceAll(/[$()*+.?[\\\]^{|}]/g, '\\$&')
}
