/** From the text of a flag or an environment variable to a value. What cannot be read stays text, and the schema says what it should be. */
import { readFile } from 'node:fs/promises'
import { quoted } from '../../../trace/quoted.ts'

export type Read =
  | { readonly value: unknown; readonly unit?: 'seconds' }
  | { readonly wrong: string }
  /** It was said, and changes nothing: a switch that is off. */
  | 'nothing'
export type Reader = (text: string) => Read | Promise<Read>

const asNumber = (text: string): number | undefined =>
  /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text.trim()) ? Number(text) : undefined

export const text: Reader = value => ({ value })

export const number: Reader = value => ({ value: asNumber(value) ?? value })

/** Other routers write −1 for no limit. */
export const orNoLimit: Reader = value => ({ value: asNumber(value) === -1 ? 0 : (asNumber(value) ?? value) })

/** Settings are in milliseconds. Rounded to a microsecond, since 1.1 × 1000 is not 1100. */
export const seconds: Reader = value => {
  const given = asNumber(value)
  return { value: given === undefined ? value : Math.round(given * 1e6) / 1e3, unit: 'seconds' }
}

/** Of an environment variable; a flag is said again for each. */
export const list: Reader = value => ({ value: value.split(',').map(part => part.trim()) })

/** As OpenTelemetry has them in its variable: NAME=VALUE with commas between them, values percent-encoded. Never what stands in it: it is secret. */
export const headerList: Reader = value => {
  try {
    return { value: value.split(',').map(part => decodeURIComponent(part).trim()) }
  } catch {
    return {
      wrong:
        'expected NAME=VALUE with commas between them, and what is behind a % to be two hexadecimal digits',
    }
  }
}

/** A worker: its URL, or NAME=URL. */
export function workerIn(given: string): string | { readonly id: string; readonly url: string } {
  const named = /^([\w.:@[\]-]{1,128})=(https?:\/\/.*)$/.exec(given)
  return named === null ? given : { id: named[1]!, url: named[2]! }
}

export const workerList: Reader = value => ({ value: value.split(',').map(part => workerIn(part.trim())) })

/** A flag without a value: what it sets when it is on, and, where it can be switched off by the environment, what then. */
export function flagSwitch(on: unknown, off?: unknown): Reader {
  return value => {
    if (['true', '1'].includes(value)) return { value: on }
    if (!['false', '0'].includes(value)) return { wrong: `expected true or false, found ${quoted(value)}` }
    return off === undefined ? 'nothing' : { value: off }
  }
}

export const keysIn: Reader = async file => {
  const lines = await linesOf(file)
  if (typeof lines === 'string') return { wrong: lines }
  return lines.length > 0
    ? { value: lines }
    : { wrong: `no key in ${quoted(file)}: expected one on each line` }
}

export const onlyLineOf: Reader = async file => {
  const lines = await linesOf(file)
  if (typeof lines === 'string') return { wrong: lines }
  return lines.length === 1
    ? { value: lines[0] }
    : { wrong: `expected one line in ${quoted(file)}, found ${lines.length}` }
}

/** Lines that are not empty; a text that says why there are none to be had. Never what stands in the file: it is secret. */
async function linesOf(file: string): Promise<string[] | string> {
  try {
    return (await readFile(file, 'utf8'))
      .split('\n')
      .map(line => line.trim())
      .filter(line => line !== '')
  } catch (error) {
    return `cannot read ${quoted(file)}: ${(error as NodeJS.ErrnoException).code ?? 'unknown reason'}`
  }
}
