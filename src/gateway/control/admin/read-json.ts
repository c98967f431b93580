/** Bodies of the admin API: small JSON objects whose every key is known, so that a misspelt one is not passed over. */
import { Refusal } from '../../http/refusal.ts'
import type { Exchange } from '../../http/exchange.ts'
import { readBody } from '../../http/read-body.ts'

const MAX_BYTES = 64 << 10

export type Fields = Readonly<Record<string, unknown>>

/** An empty body is an object without keys. */
export async function readFields(
  exchange: Exchange,
  proceed: () => void,
  known: readonly string[],
): Promise<Fields> {
  return fieldsOf(await readBody(exchange.request, MAX_BYTES, proceed, exchange), known)
}

export function fieldsOf(body: Buffer, known: readonly string[]): Fields {
  let value: unknown
  try {
    value = body.length === 0 ? {} : JSON.parse(body.toString('utf8'))
  } catch {
    throw bad('The body is not JSON.')
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw bad('The body is not a JSON object.')
  const unknown = Object.keys(value).find(key => !known.includes(key))
  if (unknown !== undefined)
    throw bad(
      `${JSON.stringify(unknown.slice(0, 64))} is not known here; known are ${known.join(', ')}.`,
      unknown,
    )
  return value as Fields
}

export function bad(words: string, param?: string): Refusal {
  return new Refusal('ELDR_BAD_REQUEST', { words, ...(param !== undefined && { param: param.slice(0, 64) }) })
}

/** A whole number within bounds, or undefined when it is not there. */
export function wholeOf(fields: Fields, name: string, min: number, max: number): number | undefined {
  const value = fields[name]
  if (value === undefined) return undefined
  if (!Number.isInteger(value) || (value as number) < min || (value as number) > max)
    throw bad(`${name} must be a whole number from ${min} to ${max}.`, name)
  return value as number
}

/** One of some names, with _ or - between words, or undefined when it is not there. */
export function nameOf<Name extends string>(
  fields: Fields,
  key: string,
  names: readonly Name[],
): Name | undefined {
  const value = fields[key]
  if (value === undefined) return undefined
  const found = names.find(name => typeof value === 'string' && name === value.replaceAll('-', '_'))
  if (found === undefined) throw bad(`${key} must be one of ${names.join(', ')}.`, key)
  return found
}
