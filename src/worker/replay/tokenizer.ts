/**
 * Tokenizer of the replay back end. Each known word is one token, with or without a leading space; everything
 * else is one token per UTF-8 byte, so any text round-trips. The marks of the chat template are tokens that
 * no text can spell.
 */
import type { ChatMessage, TextStream, Tokenizer } from '../types.ts'
import { lastTokens } from '../last-tokens.ts'
import { WORDS } from './words.ts'

/** 0…255 are bytes. */
const SPACED = 256
const BARE = SPACED + WORDS.length
const SPECIAL = BARE + WORDS.length
export const EOS_ID = SPECIAL
/** Marks of the known roles; other roles are spelled after the last one. */
const ROLES = new Map(['system', 'user', 'assistant', 'tool'].map((role, i) => [role, SPECIAL + 1 + i]))
const OTHER_ROLE = SPECIAL + 1 + ROLES.size
const END_OF_TURN = OTHER_ROLE + 1
const SIZE = END_OF_TURN + 1

const WORD_IDS = new Map<string, number>([
  ...WORDS.map((word, i): [string, number] => [` ${word}`, SPACED + i]),
  ...WORDS.map((word, i): [string, number] => [word, BARE + i]),
])
const TEXTS = [...WORD_IDS.keys()]
const NOTHING = new Uint8Array(0)
const BYTES = Array.from({ length: SPECIAL }, (_, id) =>
  id < SPACED ? Uint8Array.of(id) : Buffer.from(TEXTS[id - SPACED]!),
)

const LONGEST = Math.max(...BYTES.map(({ length }) => length))

/** The token of a plain word with a leading space. `choice`: any integer. */
export function wordId(choice: number): number {
  return SPACED + (choice % WORDS.length)
}

function encodeInto(text: string, ids: number[]): void {
  // A word ends where no letter follows, so that generated text is tokenized back to the same tokens.
  for (const [piece] of text.matchAll(/ ?[a-z]+(?![A-Za-z])|[A-Za-z]+|[^A-Za-z ]+| /g)) {
    const id = WORD_IDS.get(piece)
    if (id !== undefined) ids.push(id)
    else for (const byte of Buffer.from(piece)) ids.push(byte)
  }
}

/** Marks are tokens too, two per turn. */
function leastTokens(prompt: string | readonly ChatMessage[]): number {
  if (typeof prompt === 'string') return Math.ceil(Buffer.byteLength(prompt) / LONGEST)
  const bytes = prompt.reduce((sum, { content }) => sum + Buffer.byteLength(content), 0)
  return 2 * prompt.length + Math.ceil(bytes / LONGEST)
}

function encode(text: string): Int32Array {
  const ids: number[] = []
  encodeInto(text, ids)
  return Int32Array.from(ids)
}

/** Marks have no text. */
function decode(ids: ArrayLike<number>): string {
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(Buffer.concat(Array.from(ids, bytesOf)))
}

function bytesOf(id: number): Uint8Array {
  return BYTES[id] ?? NOTHING
}

function stream(before: ArrayLike<number> = []): TextStream {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  /** The decoder may hold part of a character. If not, words bypass it: they are what is generated. */
  let isInside = false
  const push = (id: number): string => {
    if (!isInside && id >= SPACED && id < SPECIAL) return TEXTS[id - SPACED]!
    isInside = id >= 0x80 && id < SPACED
    return decoder.decode(bytesOf(id), { stream: true })
  }
  for (const id of lastTokens(before, each => bytesOf(each).length)) push(id)
  return { push, end: () => decoder.decode() }
}

function chat(messages: readonly ChatMessage[]): Int32Array {
  const ids: number[] = []
  for (const { role, content } of messages) {
    const mark = ROLES.get(role)
    ids.push(mark ?? OTHER_ROLE)
    if (mark === undefined) encodeInto(`${role}:`, ids)
    encodeInto(content, ids)
    ids.push(END_OF_TURN)
  }
  ids.push(ROLES.get('assistant')!)
  return Int32Array.from(ids)
}

export const replayTokenizer: Tokenizer = {
  size: SIZE,
  eosId: EOS_ID,
  endsText: id => id === EOS_ID,
  leastTokens,
  encode,
  decode,
  tokenString: id => decode([id]),
  stream,
  chat,
}
