import { styleText } from 'node:util'

/** Width and colours of an output stream. One for stdout and one for stderr, since each may be a pipe. */
export interface Terminal {
  /** Columns; Infinity for a pipe or file. */
  readonly width: number
  /** True if a line may be overwritten. */
  readonly live: boolean
  bold(text: string): string
  dim(text: string): string
  accent(text: string): string
  warn(text: string): string
  write(text: string): void
}

type Style = Parameters<typeof styleText>[0]

/** Colour is off for a pipe, with NO_COLOR set to anything, and on a dumb terminal. */
export function terminalOn(stream: NodeJS.WriteStream, env: NodeJS.ProcessEnv = process.env): Terminal {
  const live = stream.isTTY === true && env['TERM'] !== 'dumb'
  const colour = live && (env['NO_COLOR'] ?? '') === ''
  const style = (as: Style) => (text: string) => (colour ? styleText(as, text) : text)
  return {
    width: stream.isTTY === true ? stream.columns || 80 /* some terminals say 0 */ : Infinity,
    live,
    bold: style('bold'),
    dim: style('dim'),
    accent: style('cyan'),
    warn: style('yellow'),
    write: text => stream.write(text),
  }
}

/** Columns of a text: colour codes take none, wide characters (Chinese, Japanese, Korean) two. */
export function columnsOf(text: string): number {
  let columns = 0
  for (const character of withoutCodes(text))
    columns +=
      /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]/.test(
        character,
      )
        ? 2
        : 1
  return columns
}

/** Wraps a text into lines of at most `width` columns; lines after the first get an additional indent. */
export function wrapped(text: string, width: number, indent = 0): string {
  const lines = ['']
  for (const word of text.split(' ')) {
    const line = lines.at(-1)!
    if (line !== '' && columnsOf(line) + 1 + columnsOf(word) > width) lines.push(word)
    else lines[lines.length - 1] = line === '' ? word : `${line} ${word}`
  }
  return lines.join(`\n${' '.repeat(indent)}`)
}

/** Text from a file must not move the cursor, change colours or reverse the text. */
export function printable(text: string): string {
  return text.replace(/\p{Cc}|\p{Cs}|[\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu, '�')
}

const CODE = new RegExp(`${String.fromCharCode(27)}\\[[0-9;]*m`, 'g')
const withoutCodes = (text: string) => text.replace(CODE, '')

/** 12345678 → 12.3 MB */
export function bytes(value: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB']
  const unit = Math.min(units.length - 1, value < 1 ? 0 : Math.floor(Math.log10(value) / 3))
  return `${unit === 0 ? value : (value / 1000 ** unit).toFixed(1)} ${units[unit]}`
}
