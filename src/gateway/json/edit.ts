/** A JSON object's bytes with some members replaced, added or taken out, and all others as they were. */
import type { Member } from './scan.ts'

/** By name: JSON text to set, undefined to take the member out. A name that comes twice in the object is taken out twice and set once. */
export type Changes = Readonly<Record<string, string | Buffer | undefined>>

/**
 * `members` are those of an object in `bytes` (`scanObject`). What is set comes first, what is kept follows in its
 * order, byte for byte.
 */
export function editObject(bytes: Buffer, members: readonly Member[], changes: Changes): Buffer {
  /** Text, or a range of `bytes` or of a value. */
  const parts: (string | Buffer)[] = []
  let text = '{'
  for (const name in changes) {
    const value = changes[name]
    if (value === undefined) continue
    text += `${text === '{' && parts.length === 0 ? '' : ','}${JSON.stringify(name)}:`
    if (typeof value === 'string') text += value
    else {
      parts.push(text, value)
      text = ''
    }
  }
  // Neighbours that are kept are one slice.
  for (let at = 0; at < members.length; at++) {
    if (Object.hasOwn(changes, members[at]!.name)) continue
    const start = members[at]!.start
    while (at + 1 < members.length && !Object.hasOwn(changes, members[at + 1]!.name)) at++
    parts.push(
      text === '{' && parts.length === 0 ? text : `${text},`,
      bytes.subarray(start, members[at]!.end),
    )
    text = ''
  }
  parts.push(`${text}}`)
  return written(parts)
}

/** In one piece, made once. */
function written(parts: readonly (string | Buffer)[]): Buffer {
  let length = 0
  for (const part of parts) length += typeof part === 'string' ? Buffer.byteLength(part) : part.length
  const bytes = Buffer.allocUnsafe(length)
  let at = 0
  for (const part of parts) at += typeof part === 'string' ? bytes.write(part, at) : part.copy(bytes, at)
  return bytes
}
