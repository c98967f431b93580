/** A JSON object's bytes with some members replaced, added or taken out, and all others as they were. */
import type { Member } from './scan.ts'

/** By name: JSON text to set, undefined to take the member out. A name that comes twice in the object is taken out twice and set once. */
export type Changes = Readonly<Record<string, string | Buffer | undefined>>

/**
 * `members` are those of the object that is the whole of `bytes` (`scanObject`). What is set comes first, what is kept follows in its
 * order, byte for byte.
 */
export function editObject(bytes: Buffer, members: readonly Member[], changes: Changes): Buffer {
  const parts: Buffer[] = []
  let separator = '{'
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined) continue
    const head = `${separator}${JSON.stringify(name)}:`
    parts.push(typeof value === 'string' ? Buffer.from(head + value) : Buffer.from(head), ...(typeof value === 'string' ? [] : [value]))
    separator = ','
  }
  // Neighbours that are kept are one slice.
  for (let at = 0; at < members.length; at++) {
    if (Object.hasOwn(changes, members[at]!.name)) continue
    const start = members[at]!.start
    while (at + 1 < members.length && !Object.hasOwn(changes, members[at + 1]!.name)) at++
    parts.push(Buffer.from(separator), bytes.subarray(start, members[at]!.end))
    separator = ','
  }
  parts.push(Buffer.from(separator === '{' ? '{}' : '}'))
  return Buffer.concat(parts)
}
