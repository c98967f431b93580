/**
 * Parsers for the text of a flag or an environment variable. Text that cannot be parsed is kept: the schema
 * reports what was expected.
 */
import { readFile } from 'node:fs/promises'
import { quoted } from '../../../trace/quoted.ts'

export type Read =
  | { readonly kind: 'value'; readonly value: unknown; readonly unit?: 'seconds' }
  | Invalid
  /** A switch that is off and changes nothing. */
  | { readonly kind: 'unset' }
export type Reader = (text: string) => Read | Promise<Read>

interface Invalid {
  readonly kind: 'invalid'
  readonly why: string
}

export const valueRead = (value: unknown): Read => ({ kind: 'value', value })
const invalid = (why: string): Invalid => ({ kind: 'invalid', why })

const asNumber = (text: string): number | undefined =>
  /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text.trim()) ? Number(text) : undefined

export const text: Reader = valueRead

export const number: Reader = value => valueRead(asNumber(value) ?? value)

/** Other routers use −1 for no limit. */
export const orNoLimit: Reader = value => valueRead(asNumber(value) === -1 ? 0 : (asNumber(value) ?? value))

/** Converts to milliseconds. Rounded to a microsecond, since 1.1 × 1000 is not 1100. */
export const seconds: Reader = value => {
  const parsed = asNumber(value)
  return {
    kind: 'value',
    value: parsed === undefined ? value : Math.round(parsed * 1e6) / 1e3,
    unit: 'seconds',
  }
}

/** A comma-separated list in an environment variable. A flag is repeated instead. */
export const list: Reader = value => valueRead(value.split(',').map(part => part.trim()))

/**
 * Comma-separated NAME=VALUE pairs with percent-encoded values, the format of OTEL_EXPORTER_OTLP_HEADERS.
 * They are secret, so the error does not repeat them.
 */
export const headerList: Reader = value => {
  try {
    return valueRead(value.split(',').map(part => decodeURIComponent(part).trim()))
  } catch {
    return invalid('expected comma-separated NAME=VALUE pairs, with two hexadecimal digits after each %')
  }
}

/** A worker: URL or NAME=URL. */
export function workerIn(text: string): string | { readonly id: string; readonly url: string } {
  const named = /^([\w.:@[\]-]{1,128})=(https?:\/\/.*)$/.exec(text)
  return named === null ? text : { id: named[1]!, url: named[2]! }
}

export const workerList: Reader = value => valueRead(value.split(',').map(part => workerIn(part.trim())))

/** A flag without a value. `on`: what it sets. `off`: what the environment variable sets with `false`. */
export function flagSwitch(on: unknown, off?: unknown): Reader {
  return value => {
    if (['true', '1'].includes(value)) return valueRead(on)
    if (!['false', '0'].includes(value)) return invalid(`expected true or false, found ${quoted(value)}`)
    return off === undefined ? { kind: 'unset' } : valueRead(off)
  }
}

export const keysIn: Reader = async file => {
  const read = await readLines(file)
  if (read.kind === 'invalid') return read
  return read.lines.length > 0
    ? valueRead(read.lines)
    : invalid(`no key in ${quoted(file)}: expected one per line`)
}

export const onlyLineOf: Reader = async file => {
  const read = await readLines(file)
  if (read.kind === 'invalid') return read
  const { lines } = read
  return lines.length === 1
    ? valueRead(lines[0])
    : invalid(`expected one line in ${quoted(file)}, found ${lines.length}`)
}

/** Returns the lines that are not empty. Errors never contain the file's content, which is secret. */
async function readLines(file: string): Promise<{ readonly kind: 'ok'; readonly lines: string[] } | Invalid> {
  try {
    const lines = (await readFile(file, 'utf8')).split('\n').map(line => line.trim())
    return { kind: 'ok', lines: lines.filter(line => line !== '') }
  } catch (error) {
    return invalid(
      `cannot read ${quoted(file)}: ${(error as NodeJS.ErrnoException).code ?? 'unknown reason'}`,
    )
  }
}
