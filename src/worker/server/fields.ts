/** Members of a JSON body, validated when read. As in vLLM, null means absent and numbers may be strings. */
import { badRequest, badShape } from './api-error.ts'

export class Fields {
  readonly #object: Readonly<Record<string, unknown>>
  readonly #path: readonly (string | number)[]

  constructor(object: Readonly<Record<string, unknown>>, path: readonly (string | number)[] = []) {
    this.#object = object
    this.#path = path
  }

  names(): string[] {
    return Object.keys(this.#object)
  }

  value(name: string): unknown {
    return this.#object[name] ?? undefined
  }

  /** Null was given, which differs from nothing where there is a default. */
  isNull(name: string): boolean {
    return this.#object[name] === null
  }

  bool(name: string): boolean {
    const value = this.value(name)
    if (value === undefined || value === false) return false
    if (value === true) return true
    throw this.#bad(name, 'bool_type', 'Input should be a valid boolean')
  }

  text(name: string): string | undefined {
    const value = this.value(name)
    if (value === undefined || typeof value === 'string') return value
    throw this.#bad(name, 'string_type', 'Input should be a valid string')
  }

  number(name: string): number | undefined {
    const value = asNumber(this.value(name))
    if (value === undefined || !Number.isNaN(value)) return value
    throw this.#bad(name, 'float_type', 'Input should be a valid number')
  }

  whole(name: string): number | undefined {
    const value = asNumber(this.value(name))
    if (value === undefined || Number.isInteger(value)) return value
    throw this.#bad(name, 'int_type', 'Input should be a valid integer')
  }

  /** Refuses values outside the bounds; `words` says what is allowed. */
  between(name: string, least: number, most: number, words: string): number | undefined {
    const value = this.number(name)
    if (value === undefined || (value >= least && value <= most)) return value
    throw badRequest(`${name} must be ${words}, got ${value}.`, name)
  }

  object(name: string): Fields | undefined {
    const value = this.value(name)
    if (value === undefined) return undefined
    if (isRecord(value)) return new Fields(value, [...this.#path, name])
    throw this.#bad(name, 'dict_type', 'Input should be a valid dictionary')
  }

  list(name: string): readonly unknown[] | undefined {
    const value = this.value(name)
    if (value === undefined || Array.isArray(value)) return value
    throw this.#bad(name, 'list_type', 'Input should be a valid list')
  }

  /** Integers ≥ 0. */
  ids(name: string): Int32Array | undefined {
    const list = this.list(name)
    return list && idsOf(list, [...this.#path, name])
  }

  missing(name: string): Error {
    return this.#bad(name, 'missing', 'Field required')
  }

  #bad(name: string, kind: string, message: string): Error {
    return badShape(kind, [...this.#path, name], message)
  }
}

export function fieldsOf(body: unknown): Fields {
  if (isRecord(body)) return new Fields(body)
  throw badShape(
    'model_attributes_type',
    [],
    'Input should be a valid dictionary or object to extract fields from',
  )
}

export function idsOf(list: readonly unknown[], path: readonly (string | number)[]): Int32Array {
  const ids = new Int32Array(list.length)
  for (let i = 0; i < ids.length; i++) {
    const id = list[i]
    if (typeof id !== 'number' || !Number.isInteger(id))
      throw badShape('int_type', [...path, i], 'Input should be a valid integer')
    if (id < 0)
      throw badShape('greater_than_equal', [...path, i], 'Input should be greater than or equal to 0')
    if (id > 0x7fffffff) throw badRequest(`Token id ${id} is out of vocabulary`, String(path.at(-1)))
    ids[i] = id
  }
  return ids
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** NaN if it is not a number. */
function asNumber(value: unknown): number | undefined {
  if (value === undefined || typeof value === 'number') return value
  return typeof value === 'string' && value.trim() !== '' ? Number(value) : NaN
}
