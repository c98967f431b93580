/** The `eldr` object of a hand-off: expert counts of a prompt, in the same form for every engine. */
import { type Member, scanObject } from '../json/scan.ts'

const [QUOTE, BACKSLASH] = [0x22, 0x5c]
/**
 * Counts are kept while the request runs. If the buffer around them is this many times larger, they are
 * copied out, so that it can be freed.
 */
const MAX_BUFFER_RATIO = 4

/** The bytes of counts in a response. */
export function countsBytes(response: Buffer, eldr: Member | undefined): Buffer | undefined {
  const bytes = bytesOf(response, eldr)
  const isSmall = bytes !== undefined && bytes.buffer.byteLength > MAX_BUFFER_RATIO * bytes.length
  return isSmall ? Buffer.from(bytes) : bytes
}

/** Parses it. Its large members are base64, which is copied instead of parsed. */
export function countsIn(bytes: Buffer): unknown {
  const members = scanObject(bytes)
  if (members === undefined)
    return valueOf(bytes, { name: 'eldr', start: 0, valueStart: 0, end: bytes.length })
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
