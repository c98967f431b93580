/**
 * Hashes of the start of a prompt, computed from the client's text because the gateway has no tokenizer. For
 * a chat it covers the tools and each message's role and content in the order in which chat templates use
 * them, independent of member order, white space and escapes.
 */
import type { Turn } from '../../policy/conversations.ts'
import type { ClientRequest } from '../http/client-request.ts'
import { last } from '../http/client-request.ts'
import { type Member, scanList, scanObject } from '../json/scan.ts'

/** Estimate. */
const BYTES_PER_TOKEN = 4
/** More messages than this never fit into the leading tokens. */
const MAX_MESSAGES = 64
const [QUOTE, BACKSLASH, OPEN_LIST, LOWER_U] = [0x22, 0x5c, 0x5b, 0x75]
/** The byte for each character after a backslash. */
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

/** 32 bits; undefined for an empty prompt. Token ids are hashed as text, about 6 bytes each. */
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
  for (const { start, end } of scanList(body, messages.valueStart, messages.end, MAX_MESSAGES) ?? []) {
    if (hash.full()) break
    addMessage(hash, body, scanObject(body, start, end) ?? [])
  }
  return hash.key()
}

/** The next turn begins with the last of these; a longer conversation is recognised by its end. */
const MAX_KEYS = 128
/** A prompt that is not a chat has no messages: it is hashed up to each multiple of this. */
const KEY_BYTES = 512

/** How a turn of a conversation is recognised; undefined for a short prompt that is not a chat. */
export function turnOf(request: ClientRequest): Turn | undefined {
  const { api, body, members, prompts, promptTokens } = request
  const hash = new PrefixHash(Number.MAX_SAFE_INTEGER)
  const keys: number[] = []
  for (const name of ['model', 'cache_salt', 'tools']) {
    const member = last(members, name)
    if (member !== undefined) hash.addValue(body, member.valueStart, member.end)
  }
  if (api === 'chat') {
    const messages = last(members, 'messages')!
    for (const { start, end } of scanList(body, messages.valueStart, messages.end) ?? []) {
      addMessage(hash, body, scanObject(body, start, end) ?? [])
      keys.push(hash.longKey())
    }
  } else
    for (
      let { start, end } = prompts[0] ?? { start: 0, end: 0 };
      end - start > KEY_BYTES;
      start += KEY_BYTES
    ) {
      hash.addBytes(body, start, start + KEY_BYTES)
      keys.push(hash.longKey())
    }
  return keys.length === 0 ? undefined : { keys: keys.slice(-MAX_KEYS), tokens: promptTokens }
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
      // For a chat template, {"type":"text","text":…} equals the text alone.
      const text = parts === undefined ? undefined : last(scanObject(body, start, end) ?? [], 'text')
      hash.addValue(body, text?.valueStart ?? start, text?.end ?? end)
    }
  }
}

/** FNV-1a over the first `limit` bytes. */
class PrefixHash {
  readonly #limit: number
  #left: number
  #hash = 0x811c9dc5

  constructor(limit: number) {
    this.#limit = limit
    this.#left = limit
  }

  full(): boolean {
    return this.#left <= 0
  }

  key(): number | undefined {
    return this.#left === this.#limit ? undefined : this.#hash >>> 0
  }

  /** 52 bits: with the length, so that two prompts rarely share one. */
  longKey(): number {
    return ((this.#limit - this.#left) % 2 ** 20) * 2 ** 32 + (this.#hash >>> 0)
  }

  addBytes(bytes: Buffer, start: number, end: number): void {
    for (let at = start; at < end; at++) this.#take(bytes[at]!)
  }

  /** Hashes a string by its characters, any other value without white space. */
  addValue(bytes: Buffer, start: number, end: number): void {
    if (bytes[start] === QUOTE) this.#addText(bytes, start + 1, end - 1)
    else this.#addRest(bytes, start, end)
    this.#take(0) // separates values
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
      // Adjacent escapes are decoded together: two may be the halves of one character. Each gives at least
      // one byte.
      let run = at
      while (run < end && bytes[run] === BACKSLASH && run - at < 6 * this.#left + 12)
        run += bytes[run + 1] === LOWER_U ? 6 : 2
      for (const byte of unescaped(bytes.toString('latin1', at, Math.min(run, end)))) this.#take(byte)
      at = run
    }
  }

  /** Up to an escape, the end or the limit. Hot path: every byte of a prompt's start passes through here. */
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
