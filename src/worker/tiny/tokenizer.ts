/**
 * Tokenizer of a byte-level BPE model. Special tokens are matched first wherever a text spells them, as in
 * vLLM and Hugging Face’s tokenizers; the rest is split into words, and words into tokens. Any text
 * round-trips.
 */
import { RequestFault } from '../engine/request-fault.ts'
import { lastTokens } from '../last-tokens.ts'
import type { ChatMessage, TextStream, Tokenizer } from '../types.ts'
import { joinPairs } from './bpe.ts'
import { characterOfByte, WORD } from './byte-level.ts'
import { chatTemplate, type ChatTemplate } from './chat-template.ts'
import { type BpeVocabulary, parseTemplate, parseVocabulary } from './tokenizer-file.ts'

export interface BpeFiles {
  readonly file: string
  readonly json: unknown
  readonly configFile: string
  readonly config: unknown
  /** chat_template.jinja, which takes precedence over the configuration’s; undefined if there is none. */
  readonly template: { readonly file: string; readonly text: string } | undefined
  /** Tokens of the model. */
  readonly vocabulary: number
  readonly endIds: readonly number[]
}

/** Size of the word cache, and the longest word in it. */
const KEPT_WORDS = 20_000
const KEPT_LENGTH = 64

export function createBpeTokenizer({
  file,
  json,
  configFile,
  config,
  template,
  vocabulary,
  endIds,
}: BpeFiles): Tokenizer {
  const own = parseTemplate(configFile, config)
  const render =
    template === undefined ? chatTemplate(configFile, own) : chatTemplate(template.file, template.text)
  return new BpeTokenizer(parseVocabulary(file, json, vocabulary), render, endIds)
}

class BpeTokenizer implements Tokenizer {
  readonly size: number
  readonly eosId: number
  readonly #vocabulary: BpeVocabulary
  readonly #template: ChatTemplate | undefined
  readonly #endIds: ReadonlySet<number>
  readonly #special: RegExp | undefined
  readonly #specialTexts: ReadonlyMap<number, string>
  readonly #longestBytes: number
  /** The old half is dropped when the young one is full: as good as exact LRU, and cheaper. */
  #young = new Map<string, Int32Array>()
  #old = new Map<string, Int32Array>()

  constructor(vocabulary: BpeVocabulary, template: ChatTemplate | undefined, endIds: readonly number[]) {
    this.size = vocabulary.size
    this.eosId = endIds[0]!
    this.#endIds = new Set(endIds)
    this.#vocabulary = vocabulary
    this.#template = template
    this.#specialTexts = new Map([...vocabulary.special].map(([text, id]) => [id, text]))
    const specialBytes = [...vocabulary.special.keys()].map(text => Buffer.byteLength(text))
    this.#longestBytes = vocabulary.bytes.reduce(
      (most, { length }) => Math.max(most, length),
      Math.max(1, ...specialBytes),
    )
    const texts = [...vocabulary.special.keys()].toSorted((a, b) => b.length - a.length)
    this.#special =
      texts.length === 0
        ? undefined
        : new RegExp(texts.map(text => text.replaceAll(/[$()*+.?[\\\]^{|}]/g, '\\$&')).join('|'), 'g')
  }

  endsText(id: number): boolean {
    return this.#endIds.has(id)
  }

  leastTokens(prompt: string | readonly ChatMessage[]): number {
    const text = typeof prompt === 'string' ? prompt : this.#rendered(prompt)
    return Math.ceil(Buffer.byteLength(text) / this.#longestBytes)
  }

  encode(given: string): Int32Array {
    // What UTF-8 cannot represent becomes U+FFFD before the split into words.
    const text = given.toWellFormed()
    const ids: number[] = []
    let from = 0
    for (const { 0: special, index } of this.#special === undefined ? [] : text.matchAll(this.#special)) {
      this.#encodePlain(text.slice(from, index), ids)
      ids.push(this.#vocabulary.special.get(special)!)
      from = index + special.length
    }
    this.#encodePlain(text.slice(from), ids)
    return Int32Array.from(ids)
  }

  decode(ids: ArrayLike<number>): string {
    const parts = Array.from(ids, id => this.#wholeBytesOf(id))
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(Buffer.concat(parts))
  }

  tokenString(id: number): string {
    return this.#specialTexts.get(id) ?? Array.from(this.#bytesOf(id), characterOfByte).join('')
  }

  stream(before: ArrayLike<number> = []): TextStream {
    const decoder = new TextDecoder('utf-8', { ignoreBOM: true })
    decoder.decode(
      Buffer.concat(lastTokens(before, id => this.#bytesOf(id).length).map(id => this.#bytesOf(id))),
      {
        stream: true,
      },
    )
    return {
      push: id => decoder.decode(this.#bytesOf(id), { stream: true }),
      end: () => decoder.decode(),
    }
  }

  chat(messages: readonly ChatMessage[]): Int32Array {
    return this.encode(this.#rendered(messages))
  }

  #rendered(messages: readonly ChatMessage[]): string {
    if (this.#template === undefined)
      throw new RequestFault(400, 'This model has no chat template: use /v1/completions.')
    return this.#template(messages)
  }

  /** For generated text: special tokens have no bytes. */
  #bytesOf(id: number): Uint8Array {
    return this.#vocabulary.bytes[id] ?? new Uint8Array(0)
  }

  #wholeBytesOf(id: number): Uint8Array {
    const text = this.#specialTexts.get(id)
    return text === undefined ? this.#bytesOf(id) : Buffer.from(text)
  }

  #encodePlain(text: string, ids: number[]): void {
    for (const [word] of text.matchAll(WORD)) for (const id of this.#tokensOf(word)) ids.push(id)
  }

  #tokensOf(word: string): Int32Array {
    const known = this.#young.get(word) ?? this.#old.get(word)
    if (known !== undefined) return known
    const tokens = Int32Array.from(Buffer.from(word), byte => this.#vocabulary.byteIds[byte]!)
    const found = tokens.slice(0, joinPairs(tokens, tokens.length, this.#vocabulary.merges))
    if (word.length > KEPT_LENGTH) return found
    if (this.#young.size >= KEPT_WORDS / 2) [this.#old, this.#young] = [this.#young, new Map()]
    this.#young.set(word, found)
    return found
  }
}
