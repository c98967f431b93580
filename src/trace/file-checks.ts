/** Checks common to all file kinds: format, integers and JSON in the metadata, type and shape of tensors. */
import { EldrError } from '../errors.ts'
import type { Dtype } from './dtype.ts'
import { quoted } from './quoted.ts'
import type { SafetensorsFile } from './safetensors-file.ts'
import type { TensorInfo } from './safetensors-header.ts'

type Metadata = Readonly<Record<string, string>>

/** Formats are `eldr.KIND.vN`. Another N is an unknown version, another KIND a wrong file. */
export function checkFormat(file: string, format: string | undefined, expected: string): void {
  if (format === expected) return
  const kind = expected.slice(0, expected.lastIndexOf('.') + 1)
  const found =
    format === undefined ? 'a safetensors file without a format in its metadata' : `format ${quoted(format)}`
  throw new EldrError(format?.startsWith(kind) ? 'ELDR_FILE_UNKNOWN_VERSION' : 'ELDR_FILE_WRONG_KIND', {
    file,
    found,
    expected,
  })
}

export function badMetadata(file: string, found: string, expected: string): EldrError {
  return new EldrError('ELDR_FILE_BAD_METADATA', { file, found, expected })
}

export function textOf(file: string, metadata: Metadata, key: string): string {
  const text = metadata[key] ?? ''
  if (text === '') throw badMetadata(file, `no ${key}`, 'some text')
  return text
}

/** An integer from `min` (default: 1) to `max`. */
export function wholeNumber(file: string, metadata: Metadata, key: string, max: number, min = 1): number {
  const text = metadata[key]
  const value = text !== undefined && /^(0|[1-9]\d{0,15})$/.test(text) ? Number(text) : NaN
  if (value >= min && value <= max) return value
  throw badMetadata(
    file,
    text === undefined ? `no ${key}` : `${key} ${quoted(text)}`,
    `a whole number from ${min} to ${max}`,
  )
}

/** A finite number in [min, max]; undefined if the key is absent. */
export function optionalNumber(
  file: string,
  metadata: Metadata,
  key: string,
  min: number,
  max: number,
): number | undefined {
  const text = metadata[key]
  if (text === undefined) return undefined
  const value = /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i.test(text) ? Number(text) : NaN
  if (value >= min && value <= max) return value
  throw badMetadata(
    file,
    `${key} ${quoted(text)}`,
    min === Number.MIN_VALUE ? `a number above 0, at most ${max}` : `a number from ${min} to ${max}`,
  )
}

/** JSON under a key, if `accept` approves it. */
export function jsonOf<T>(
  file: string,
  metadata: Metadata,
  key: string,
  expected: string,
  accept: (value: unknown) => value is T,
): T {
  const text = metadata[key]
  if (text === undefined) throw badMetadata(file, `no ${key}`, expected)
  try {
    const value: unknown = JSON.parse(text)
    if (accept(value)) return value
  } catch {
    // reported below
  }
  throw badMetadata(file, `${key} ${quoted(text)}`, expected)
}

export const isNumberList = (value: unknown): value is number[] =>
  Array.isArray(value) && value.every(item => Number.isFinite(item))

/** Comma-separated names; empty if the key is absent. */
export function namesOf(file: string, metadata: Metadata, key: string, max: number): string[] {
  const text = metadata[key]
  if (text === undefined || text === '') return []
  const names = text.split(',').map(name => name.trim())
  if (names.length > max) throw badMetadata(file, `${names.length} ${key}`, `at most ${max}`)
  if (names.includes('') || new Set(names).size < names.length) {
    throw badMetadata(file, `${key} ${quoted(text)}`, 'different names separated by commas')
  }
  return names
}

/** An axis is a length, or a test with a description. */
export type Axis = number | { readonly fits: (size: number) => boolean; readonly name: string }

export function checkTensor(
  file: string,
  { name, dtype, shape }: TensorInfo,
  dtypes: readonly Dtype[],
  axes: readonly Axis[],
): void {
  if (!dtypes.includes(dtype)) {
    throw new EldrError('ELDR_TENSOR_BAD_TYPE', {
      file,
      found: `${dtype} for ${name}`,
      expected: dtypes.join(' or '),
    })
  }
  const fits = (axis: Axis, size: number) => (typeof axis === 'number' ? size === axis : axis.fits(size))
  if (shape.length === axes.length && axes.every((axis, i) => fits(axis, shape[i]!))) return
  const expected = axes.map(axis => (typeof axis === 'number' ? axis : axis.name)).join(', ')
  throw new EldrError('ELDR_TENSOR_BAD_SHAPE', {
    file,
    found: `[${shape.join(', ')}] for ${name}`,
    expected: `[${expected}]`,
  })
}

/** Reads a tensor of one type and shape. */
export async function readTensor<D extends Dtype>(
  from: SafetensorsFile,
  name: string,
  dtype: D,
  shape: readonly number[],
) {
  checkTensor(from.path, from.info(name), [dtype], shape)
  return from.readAs(name, dtype)
}

/** The first value that fails `fine`, as an error that names its position. */
export function checkValues(
  file: string,
  name: string,
  values: ArrayLike<number>,
  fine: (value: number) => boolean,
  expected: string,
): void {
  for (let at = 0; at < values.length; at++) {
    if (!fine(values[at]!))
      throw new EldrError('ELDR_TENSOR_BAD_VALUE', {
        file,
        found: `${values[at]} at ${at} of ${name}`,
        expected,
      })
  }
}
