/**
 * Reads request bodies of the admin API: small JSON objects. Unknown keys are refused, so that a misspelt one
 * is noticed.
 */
import { Refusal } from '../../http/refusal.ts'
import type { Exchange } from '../../http/exchange.ts'
import { readBody } from '../../http/read-body.ts'

const MAX_BYTES = 64 << 10

export type Fields = Readonly<Record<string, unknown>>

/** An empty body counts as an empty object. */
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
    throw badRequest('The body is not valid JSON.')
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw badRequest('The body is not a JSON object.')
  const unknown = Object.keys(value).find(key => !known.includes(key))
  if (unknown !== undefined)
    throw badRequest(
      `Unknown key ${JSON.stringify(unknown.slice(0, 64))}; ${known.length === 0 ? 'expected none' : `expected ${known.join(', ')}`}.`,
      unknown,
    )
  return value as Fields
}

export function badRequest(words: string, param?: string): Refusal {
  return new Refusal('ELDR_BAD_REQUEST', { words, param: param?.slice(0, 64) })
}

/** A whole number from `min` to `max`; undefined if absent. */
export function wholeOf(fields: Fields, name: string, min: number, max: number): number | undefined {
  const value = fields[name]
  if (value === undefined) return undefined
  if (!Number.isInteger(value) || (value as number) < min || (value as number) > max)
    throw badRequest(`${name} must be a whole number from ${min} to ${max}.`, name)
  return value as number
}

/** One of `names`, written with _ or -; undefined if absent. */
export function nameOf<Name extends string>(
  fields: Fields,
  key: string,
  names: readonly Name[],
): Name | undefined {
  const value = fields[key]
  if (value === undefined) return undefined
  const found = names.find(name => typeof value === 'string' && name === value.replaceAll('-', '_'))
  if (found === undefined) throw badRequest(`${key} must be one of ${names.join(', ')}.`, key)
  return found
}
