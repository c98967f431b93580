/**
 * A number that prompts which begin alike have in common, from the text that the client sent: the gateway has no tokenizer. Of a chat it
 * is made of the tools and of each message's role and content, in the order in which templates write them, whatever the order of the
 * members, the white space between them and the way in which characters are escaped.
 */
import type { ClientRequest } from '../http/client-request.ts'
import { last } from '../http/client-request.ts'
import { type Member, scanList, scanObject } from '../json/scan.ts'

/** Bytes of text that count as a token. */
const BYTES_PER_TOKEN = 4
/** More messages than this never fit into the leading tokens. */
const MOST_MESSAGES = 64
const [QUOTE, BACKSLASH, OPEN_LIST, LOWER_U] = [0x22, 0x5c, 0x5b, 0x75]
/** What stands behind a backslash: what it stands for, as bytes. */
const ESCAPES: Readonly<Record<number, number>> = {
  0x22: 0x22,
  0x2f: 0x2f,
  0x5c: 0x5c,
  0x62: 8,
  0x66: 12,
  0x6e: 10,
  0x72: 13,
  0x74: 9,
}

/** 32 bits; undefined when there is nothing to go by. Ids are looked at as text, about 6 bytes each. */
export function prefixKeyOf(request: ClientRequest, tokens: number): number | undefined {
  const hash = new PrefixHash(tokens * BYTES_PER_TOKEN)
  const { body, members } = request
  if (request.api === 'completions') {
    const prompt = request.prompts[0]
    if (prompt !== undefined) hash.addValue(body, prompt.start, prompt.end)
    return hash.key()
  }
  const tools = last(members, 'tools')
  if (tools !== undefined) hash.addValue(body, tools.valueStart, tools.end)
  const messages = last(members, 'messages')!
  for (const { start, end } of scanList(body, messages.valueStart, messages.end, MOST_MESSAGES) ?? []) {
    if (hash.full()) break
    addMessage(hash, body, scanObject(body, start, end) ?? [])
  }
  return hash.key()
}

function addMessage(hash: PrefixHash, body: Buffer, members: readonly Member[]): void {
  for (const name of ['role', 'name', 'content', 'tool_calls', 'tool_call_id']) {
    const member = last(members, name)
    if (member === undefined) continue
    const parts =
      name === 'content' && body[member.valueStart] === OPEN_LIST
        ? scanList(body, member.valueStart, member.end)
        : undefined
    for (const { start, end } of parts ?? [{ start: member.valueStart, end: member.end }]) {
      // {"type":"text","text":…} is the same to a template as the text alone.
      const text = parts === undefined ? undefined : last(scanObject(body, start, end) ?? [], 'text')
      hash.addValue(body, text?.valueStart ?? start, text?.end ?? end)
    }
  }
}

/** FNV-1a over the first `most` bytes that are added. */
class PrefixHash {
  readonly #most: number
  #left: number
  #hash = 0x811c9dc5

  constructor(most: number) {
    this.#most = most
    this.#left = most
  }

  full(): boolean {
    return this.#left <= 0
  }

  key(): number | undefined {
    return this.#left === this.#most ? undefined : this.#hash >>> 0
  }

  /** A text by its characters, anything else without its white space. */
  addValue(bytes: Buffer, start: number, end: number): void {
    if (bytes[start] === QUOTE) this.#addText(bytes, start + 1, end - 1)
    else this.#addRest(bytes, start, end)
    this.#take(0) // so that the end of one value is not the beginning of the next
  }

  #take(byte: number): void {
    if (this.#left <= 0) return
    this.#hash = Math.imul(this.#hash ^ byte, 0x01000193)
    this.#left--
  }

  #addText(bytes: Buffer, start: number, end: number): void {
    for (let at = start; at < end && !this.full();) {
      at = this.#addPlain(bytes, at, end)
      if (at >= end || this.full()) return
      const simple = ESCAPES[bytes[at + 1]!]
      if (simple !== undefined) {
        this.#take(simple)
        at += 2
        continue
      }
      // Neighbours are read together: two of them may be the halves of one character. Each gives a byte at least.
      let run = at
      while (run < end && bytes[run] === BACKSLASH && run - at < 6 * this.#left + 12)
        run += bytes[run + 1] === LOWER_U ? 6 : 2
      for (const byte of unescaped(bytes.toString('latin1', at, Math.min(run, end)))) this.#take(byte)
      at = run
    }
  }

  /** Up to an escape, the end, or what is enough. Every prompt goes through here byte by byte. */
  #addPlain(bytes: Buffer, start: number, end: number): number {
    let hash = this.#hash
    const most = Math.min(end, start + this.#left)
    let at = start
    for (; at < most; at++) {
      const byte = bytes[at]!
      if (byte === BACKSLASH) break
      hash = Math.imul(hash ^ byte, 0x01000193)
    }
    this.#hash = hash
    this.#left -= at - start
    return at
  }

  #addRest(bytes: Buffer, start: number, end: number): void {
    let inString = false
    for (let at = start; at < end && !this.full(); at++) {
      const byte = bytes[at]!
      if (byte === BACKSLASH && inString) this.#take(bytes[at++]!)
      else if (byte === QUOTE) inString = !inString
      else if (!inString && byte <= 0x20) continue
      this.#take(bytes[at]!)
    }
  }
}

function unescaped(text: string): Buffer {
  try {
    return Buffer.from(JSON.parse(`"${text}"`) as string)
  } catch {
    return Buffer.from(text, 'latin1')
  }
}
