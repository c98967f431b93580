/**
 * Finds the members of a JSON object in its raw bytes without parsing their values: a prompt of 32 KB is
 * skipped as one value. Nested values are scanned for brackets and strings only, so that a worker gets
 * exactly what the client sent. Bytes of multi-byte UTF-8 characters are never ASCII, so strings can be
 * searched byte by byte.
 */
export interface Member {
  readonly name: string
  /** Offset of the opening quote of the name. */
  readonly start: number
  readonly valueStart: number
  readonly end: number
}

const QUOTE = 0x22
const BACKSLASH = 0x5c
const OPEN = 0x7b
const CLOSE = 0x7d
const OPEN_LIST = 0x5b
const CLOSE_LIST = 0x5d
const COMMA = 0x2c
const COLON = 0x3a
const ZERO = 0x30
const NINE = 0x39

/** Strings up to this length are searched byte by byte. */
const SHORT_BYTES = 24

/** Deeper nesting is refused; Python's parser fails at about 1,000. */
const MAX_DEPTH = 512

/** Members in order, with escapes in names resolved; undefined if the range is not one JSON object. */
export function scanObject(bytes: Buffer, from = 0, to = bytes.length): Member[] | undefined {
  let at = skipSpace(bytes, from, to)
  if (bytes[at] !== OPEN) return undefined
  const members: Member[] = []
  at = skipSpace(bytes, at + 1, to)
  if (bytes[at] === CLOSE) return skipSpace(bytes, at + 1, to) === to ? members : undefined
  for (;;) {
    if (at >= to || bytes[at] !== QUOTE) return undefined
    const start = at
    const nameEnd = endOfString(bytes, at, to)
    if (nameEnd < 0) return undefined
    const name = nameAt(bytes, start, nameEnd)
    at = skipSpace(bytes, nameEnd, to)
    if (name === undefined || bytes[at] !== COLON) return undefined
    const valueStart = skipSpace(bytes, at + 1, to)
    const end = endOfValue(bytes, valueStart, to)
    if (end < 0) return undefined
    members.push({ name, start, valueStart, end })
    at = skipSpace(bytes, end, to)
    if (at >= to) return undefined
    if (bytes[at] === CLOSE) return skipSpace(bytes, at + 1, to) === to ? members : undefined
    if (bytes[at] !== COMMA) return undefined
    at = skipSpace(bytes, at + 1, to)
  }
}

/** Ranges of the elements, at most `max` of them; undefined if the range is not one JSON array. */
export function scanList(
  bytes: Buffer,
  from: number,
  to: number,
  max = Infinity,
): { start: number; end: number }[] | undefined {
  let at = skipSpace(bytes, from, to)
  if (bytes[at] !== OPEN_LIST) return undefined
  const elements: { start: number; end: number }[] = []
  at = skipSpace(bytes, at + 1, to)
  if (bytes[at] === CLOSE_LIST) return elements
  while (elements.length < max) {
    const end = endOfValue(bytes, at, to)
    if (end < 0) return undefined
    elements.push({ start: at, end })
    at = skipSpace(bytes, end, to)
    if (bytes[at] === CLOSE_LIST) return elements
    if (at >= to || bytes[at] !== COMMA) return undefined
    at = skipSpace(bytes, at + 1, to)
  }
  return elements
}

/**
 * Offset after the value that begins at `at`; −1 if there is none. Does not validate the inside of arrays and
 * objects.
 */
function endOfValue(bytes: Buffer, at: number, to: number): number {
  if (at >= to) return -1
  const first = bytes[at]!
  if (first === QUOTE) return endOfString(bytes, at, to)
  if (first === OPEN || first === OPEN_LIST) return endOfNested(bytes, at, to)
  return endOfScalar(bytes, at, to)
}

function endOfNested(bytes: Buffer, at: number, to: number): number {
  let depth = 0
  for (let i = at; i < to; i++) {
    const byte = bytes[i]!
    if (byte === QUOTE) {
      i = endOfString(bytes, i, to) - 1
      if (i < 0) return -1
    } else if (byte === OPEN || byte === OPEN_LIST) {
      if (++depth > MAX_DEPTH) return -1
    } else if ((byte === CLOSE || byte === CLOSE_LIST) && --depth === 0) return i + 1
  }
  return -1
}

/** A number, true, false or null. */
function endOfScalar(bytes: Buffer, at: number, to: number): number {
  let end = at
  while (end < to && !isEnd(bytes[end]!)) end++
  if (end === at || end - at > 64) return -1
  return isWholeNumber(bytes, at, end) || SCALAR.test(bytes.toString('latin1', at, end)) ? end : -1
}

/** Fast path: most scalars are counts and token ids. */
function isWholeNumber(bytes: Buffer, at: number, end: number): boolean {
  if (bytes[at] === ZERO && end - at > 1) return false
  for (let i = at; i < end; i++) if (bytes[i]! < ZERO || bytes[i]! > NINE) return false
  return true
}

const SCALAR = /^(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)$/

/** `at`: the opening quote. Returns the offset after the closing one, or −1. */
function endOfString(bytes: Buffer, at: number, to: number): number {
  // For names and other short strings a loop is cheaper than a call of `indexOf`.
  const near = Math.min(to, at + SHORT_BYTES)
  for (let i = at + 1; i < near; i++) {
    const byte = bytes[i]!
    if (byte === QUOTE) return i + 1
    if (byte === BACKSLASH) break
  }
  for (
    let quote = bytes.indexOf(QUOTE, at + 1);
    quote >= 0 && quote < to;
    quote = bytes.indexOf(QUOTE, quote + 1)
  ) {
    let backslashes = 0
    while (bytes[quote - 1 - backslashes] === BACKSLASH) backslashes++
    if (backslashes % 2 === 0) return quote + 1
  }
  return -1
}

/** Names seen last, by their bytes: requests repeat the same ones, and comparing is cheaper than decoding. */
const names: { readonly bytes: Uint8Array; readonly name: string }[] = Array.from({ length: 256 }, () => ({
  bytes: new Uint8Array(0),
  name: '',
}))

/** `start`: the opening quote. `end`: the offset after the closing one. */
function nameAt(bytes: Buffer, start: number, end: number): string | undefined {
  const length = end - start - 2
  if (length > SHORT_BYTES) return decoded(bytes, start, end)
  let hash = 0
  for (let at = start + 1; at < end - 1; at++) hash = (hash * 31 + bytes[at]!) | 0
  const slot = hash & 255
  const seen = names[slot]!
  if (seen.bytes.length === length && isAt(seen.bytes, bytes, start + 1)) return seen.name
  const name = decoded(bytes, start, end)
  if (name !== undefined) names[slot] = { bytes: Uint8Array.from(bytes.subarray(start + 1, end - 1)), name }
  return name
}

function isAt(wanted: Uint8Array, bytes: Buffer, at: number): boolean {
  for (let i = 0; i < wanted.length; i++) if (bytes[at + i] !== wanted[i]) return false
  return true
}

function decoded(bytes: Buffer, start: number, end: number): string | undefined {
  const inner = bytes.toString('utf8', start + 1, end - 1)
  if (!inner.includes('\\')) return inner
  try {
    return JSON.parse(`"${inner}"`) as string
  } catch {
    return undefined
  }
}

function skipSpace(bytes: Buffer, at: number, to: number): number {
  while (at < to && isSpace(bytes[at]!)) at++
  return at
}

function isSpace(byte: number): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09
}

function isEnd(byte: number): boolean {
  return byte === COMMA || byte === CLOSE || byte === CLOSE_LIST || isSpace(byte)
}
