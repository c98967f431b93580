/** The `eldr` object of a hand-off: expert counts of a prompt, in the same form for every engine. */
import { type Member, scanObject } from '../json/scan.ts'

const [QUOTE, BACKSLASH] = [0x22, 0x5c]

/** Parses counts that were left as bytes. */
export function countsIn(raw: Buffer): unknown {
  return countsOf(raw, { name: 'eldr', start: 0, valueStart: 0, end: raw.length })
}

/** Its large members are base64, which is copied instead of parsed. */
export function countsOf(bytes: Buffer, eldr: Member | undefined): unknown {
  const members = eldr && scanObject(bytes, eldr.valueStart, eldr.end)
  if (members === undefined) return valueOf(bytes, eldr)
  const counts: Record<string, unknown> = {}
  for (const member of members) {
    const { name, valueStart, end } = member
    const isLarge = name === 'counts' || name === 'recent'
    const isPlainText = bytes[valueStart] === QUOTE && !bytes.subarray(valueStart, end).includes(BACKSLASH)
    counts[name] =
      isLarge && isPlainText ? bytes.toString('latin1', valueStart + 1, end - 1) : valueOf(bytes, member)
  }
  return counts
}

export function bytesOf(bytes: Buffer, member: Member | undefined): Buffer | undefined {
  return member && bytes.subarray(member.valueStart, member.end)
}

/** Undefined for a missing member, and for one that is not JSON. */
export function valueOf(bytes: Buffer, member: Member | undefined): unknown {
  if (member === undefined) return undefined
  try {
    return JSON.parse(bytes.toString('utf8', member.valueStart, member.end)) as unknown
  } catch {
    return undefined
  }
}
