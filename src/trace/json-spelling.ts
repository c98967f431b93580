/**
 * Finds what JSON.parse does not report in a safetensors header: a name given twice in one object, a number
 * that is not written as a plain integer (1.0, 1e3 and −0 parse to the same values as 1, 1000 and 0, and
 * Python rejects them), half of a surrogate pair, and nesting so deep or tokens so many that parsing would
 * need far more memory than the text.
 *
 * One pass over the text, which may be anything: invalid JSON is left for JSON.parse to reject.
 */
import { quoted } from './quoted.ts'

/** A header needs three levels: the tensors, one tensor, its shape. */
const MAX_DEPTH = 16
/**
 * Strings, numbers and brackets. A tensor has about 15, so this allows 30,000 tensors, ten times what the
 * largest models put into a file.
 */
const MAX_PIECES = 500_000

const SPACES = ' \t\n\r'
const SEPARATORS = `${SPACES},:`

/** Throws a SyntaxError that says what is wrong. */
export function checkSpelling(text: string): void {
  const names: (Set<string> | undefined)[] = [] // one per open object; undefined for an array
  let pieces = 0
  for (let at = 0; at < text.length; at++) {
    const char = text[at]!
    if (SEPARATORS.includes(char)) continue
    if (++pieces > MAX_PIECES)
      throw new SyntaxError(`JSON of more than ${MAX_PIECES} strings, numbers and brackets`)
    if (char === '{' || char === '[') {
      if (names.push(char === '{' ? new Set() : undefined) > MAX_DEPTH)
        throw new SyntaxError(`JSON nested more than ${MAX_DEPTH} deep`)
    } else if (char === '}' || char === ']') {
      names.pop()
    } else if (char === '"') {
      const end = stringEnd(text, at)
      const value = JSON.parse(text.slice(at, end)) as string
      if (/\p{Surrogate}/u.test(value)) throw new SyntaxError(`half a surrogate pair in ${quoted(value)}`)
      if (isNameAt(text, end)) addName(names.at(-1), value)
      at = end - 1
    } else if (char === '-' || (char >= '0' && char <= '9')) {
      const end = numberEnd(text, at)
      if (!/^(0|[1-9]\d*)$/.test(text.slice(at, end)))
        throw new SyntaxError(`the number ${quoted(text.slice(at, end))}`)
      at = end - 1
    }
  }
}

function addName(names: Set<string> | undefined, name: string): void {
  if (names?.has(name) === true) throw new SyntaxError(`the name ${quoted(name)} twice`)
  names?.add(name)
}

/** Position after the closing quote of the string that opens at `from`. */
function stringEnd(text: string, from: number): number {
  let at = from + 1
  while (at < text.length && text[at] !== '"') at += text[at] === '\\' ? 2 : 1
  return at + 1
}

function numberEnd(text: string, from: number): number {
  let at = from
  while (at < text.length && '+-.eE0123456789'.includes(text[at]!)) at++
  return at
}

/** True if a string that ends at `from` is the name of a member: a colon follows. */
function isNameAt(text: string, from: number): boolean {
  let at = from
  while (at < text.length && SPACES.includes(text[at]!)) at++
  return text[at] === ':'
}
