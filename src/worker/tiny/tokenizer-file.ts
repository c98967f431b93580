/**
 * Reads and validates tokenizer.json and tokenizer_config.json: accepts only a byte-level BPE like GPT-2’s.
 */
import * as z from 'zod'
import type { Merges } from './bpe.ts'
import { bytesOfToken, characterOfByte } from './byte-level.ts'
import { badModel, checked } from './config.ts'

export interface BpeVocabulary {
  readonly size: number
  /** Bytes of each token; empty for special tokens and unused ids. */
  readonly bytes: readonly Uint8Array[]
  /** [256] */
  readonly byteIds: Int32Array
  readonly merges: Merges
  /** Special tokens, which are matched first in a text. */
  readonly special: ReadonlyMap<string, number>
}

const byteLevel = { type: z.literal('ByteLevel'), use_regex: z.literal(true).default(true) }
const schema = z.object({
  normalizer: z.null(),
  pre_tokenizer: z.object({ ...byteLevel, add_prefix_space: z.literal(false) }),
  post_processor: z.null(),
  decoder: z.object(byteLevel),
  added_tokens: z.array(
    z.object({
      id: z.int().min(0),
      content: z.string().min(1),
      special: z.literal(true),
      // Not supported.
      single_word: z.literal(false),
      lstrip: z.literal(false),
      rstrip: z.literal(false),
    }),
  ),
  model: z.object({
    type: z.literal('BPE'),
    dropout: z.null().default(null),
    byte_fallback: z.literal(false).default(false),
    ignore_merges: z.literal(false).default(false),
    continuing_subword_prefix: z.union([z.null(), z.literal('')]).default(null),
    end_of_word_suffix: z.union([z.null(), z.literal('')]).default(null),
    // Thousands of entries: validated one by one below.
    vocab: z.looseObject({}),
    merges: z.array(z.unknown()),
  }),
})

const configSchema = z.object({
  chat_template: z.string().nullish(),
  add_bos_token: z.literal(false).default(false),
})

/**
 * Minimum share of the model’s token ids that the tokenizer must define. The rest is padding; more padding
 * means that the tokenizer belongs to another model.
 */
const MIN_SHARE = 0.9

export function parseTemplate(file: string, json: unknown): string | undefined {
  return checked(file, configSchema, json).chat_template ?? undefined
}

export function parseVocabulary(file: string, json: unknown, size: number): BpeVocabulary {
  const { added_tokens: added, model } = checked(file, schema, json)
  const special = new Map(added.map(({ content, id }) => [content, id]))
  const bytes: Uint8Array[] = Array.from({ length: size }, () => new Uint8Array(0))
  const problems: string[] = []
  const ids = new Map(Object.entries(model.vocab as Record<string, number>))
  for (const [text, id] of [...ids, ...special]) {
    if (!Number.isInteger(id) || id < 0)
      problems.push(`token ${JSON.stringify(text)} has id ${JSON.stringify(id)}, which is not an integer`)
    else if (id >= size)
      problems.push(
        `token ${JSON.stringify(text)} has id ${id}, which is not less than ${size}, the vocabulary size in config.json`,
      )
    else if (!special.has(text)) {
      const own = bytesOfToken(text)
      if (own === undefined) problems.push(`token ${JSON.stringify(text)} is not in byte-level form`)
      else bytes[id] = own
    }
  }
  problems.push(...sharedIds(ids, added))
  const byteIds = Int32Array.from({ length: 256 }, (_, byte) => ids.get(characterOfByte(byte)) ?? -1)
  if (byteIds.includes(-1))
    problems.push(`byte ${byteIds.indexOf(-1)} has no token, so some texts cannot be encoded`)
  const pairs = new Map<number, number>()
  model.merges.forEach((merge, rank) => {
    const pair: unknown[] = typeof merge === 'string' ? merge.split(' ') : Array.isArray(merge) ? merge : []
    const [a, b, joined] = [ids.get(pair[0] as string), ids.get(pair[1] as string), ids.get(pair.join(''))]
    if (pair.length !== 2 || a === undefined || b === undefined || joined === undefined)
      problems.push(`merge ${rank}, ${JSON.stringify(merge)}, is not a pair of tokens that make a third`)
    else if (!pairs.has(a * size + b)) pairs.set(a * size + b, rank * size + joined)
  })
  // A token that no merge produces can never be encoded, so the merges belong to another vocabulary.
  const made = new Set([...byteIds, ...special.values(), ...[...pairs.values()].map(found => found % size)])
  for (const [text, id] of ids)
    if (!made.has(id)) problems.push(`token ${JSON.stringify(text)} with id ${id} is produced by no merge`)
  const known = new Set([...ids.values(), ...special.values()]).size
  if (known < MIN_SHARE * size)
    problems.push(
      `${known} tokens for a vocabulary of ${size} in config.json: at least ${MIN_SHARE * 100} % are required`,
    )
  if (problems.length > 0) throw badModel(file, problems)
  return { size, bytes, byteIds, merges: { pairs, size }, special }
}

/** Special tokens may also be in the vocabulary, as themselves. */
function sharedIds(
  ids: ReadonlyMap<string, number>,
  added: readonly { readonly content: string; readonly id: number }[],
): string[] {
  const problems: string[] = []
  const texts = new Map<number, string>()
  for (const [text, id] of [...ids, ...added.map(({ content, id }) => [content, id] as const)]) {
    const other = texts.get(id)
    if (other !== undefined && other !== text)
      problems.push(`id ${id} has two tokens, ${JSON.stringify(other)} and ${JSON.stringify(text)}`)
    texts.set(id, text)
  }
  const ownIds = new Map(ids)
  for (const { content, id } of added) {
    const own = ownIds.get(content)
    if (own !== undefined && own !== id)
      problems.push(`token ${JSON.stringify(content)} has two ids, ${own} and ${id}`)
    ownIds.set(content, id)
  }
  return problems
}
