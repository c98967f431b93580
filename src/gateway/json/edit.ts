/** Edits members of a JSON object in its raw bytes and keeps all other bytes. */
import type { Member } from './scan.ts'

/**
 * By name: JSON text to set, or undefined to remove the member. A duplicate member is removed and set once.
 */
export type Changes = Readonly<Record<string, string | Buffer | undefined>>

/**
 * `members`: members of the object in `bytes`, from `scanObject`. Members that are set come first; the others
 * follow in their order, byte for byte.
 */
export function editObject(bytes: Buffer, members: readonly Member[], changes: Changes): Buffer {
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
  // Adjacent members that are kept form one slice.
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
  return concat(parts)
}

/** Concatenates with a single allocation. */
function concat(parts: readonly (string | Buffer)[]): Buffer {
  let length = 0
  for (const part of parts) length += typeof part === 'string' ? Buffer.byteLength(part) : part.length
  const bytes = Buffer.allocUnsafe(length)
  let at = 0
  for (const part of parts) at += typeof part === 'string' ? bytes.write(part, at) : part.copy(bytes, at)
  return bytes
}
