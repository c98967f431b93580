import { InvalidArgumentError } from 'commander'
import { EldrError } from '../errors.ts'
import { TRANSFORMS, type TransformName } from '../signature/transform.ts'

/**
 * Parsers of option values. Their errors are usage errors: exit code 2 and a line that says what is allowed.
 */

export function usageError(found: string, expected: string, todo: string): EldrError {
  return new EldrError('ELDR_USAGE', { found, expected, todo })
}

export function wholeNumber(min: number, max: number): (text: string) => number {
  return text => {
    const value = /^\d{1,15}$/.test(text) ? Number(text) : NaN
    if (value >= min && value <= max) return value
    throw new InvalidArgumentError(`Expected a whole number from ${min} to ${max}.`)
  }
}

/** Above 0, in plain digits. */
export function positiveNumber(text: string): number {
  const value = /^\d{1,9}(\.\d{1,9})?$/.test(text) ? Number(text) : NaN
  if (value > 0) return value
  throw new InvalidArgumentError(
    'Expected a number above 0 and below 1,000,000,000 in plain digits, such as 12.5.',
  )
}

/** Comma-separated names without duplicates. */
export function nameList(text: string): string[] {
  const names = text.split(',').map(name => name.trim())
  if (!names.includes('') && new Set(names).size === names.length) return names
  throw new InvalidArgumentError('Expected a comma-separated list of names without duplicates.')
}

/** The same name may be in it twice. */
export function nameSequence(text: string): string[] {
  const names = text.split(',').map(name => name.trim())
  if (!names.includes('')) return names
  throw new InvalidArgumentError('Expected a comma-separated list of names.')
}

export function transformName(text: string): TransformName | 'auto' {
  if (text === 'auto' || TRANSFORMS.includes(text as TransformName)) return text as TransformName | 'auto'
  throw new InvalidArgumentError(`Expected auto or one of ${TRANSFORMS.join(', ')}.`)
}

/** `auto`, `all`, or layer numbers and ranges such as 0,3,8-11. */
export function layerList(text: string): 'auto' | 'all' | number[] {
  if (text === 'auto' || text === 'all') return text
  const layers = new Set<number>()
  for (const part of text.split(',')) {
    const [, from, to = from] = /^(\d{1,4})(?:-(\d{1,4}))?$/.exec(part.trim()) ?? []
    if (from === undefined || Number(to) < Number(from))
      throw new InvalidArgumentError('Expected auto, all, or layers from 0 such as 0,3,8-11.')
    for (let layer = Number(from); layer <= Number(to); layer++) layers.add(layer)
  }
  return Array.from(layers).sort((a, b) => a - b)
}

export const MAX_WORKERS = 65_535
