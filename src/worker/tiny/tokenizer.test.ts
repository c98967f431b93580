import { readFileSync } from 'node:fs'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { ChatMessage, Tokenizer } from '../types.ts'
import { joinLong, joinShort } from './bpe.ts'
import { parseVocabulary } from './tokenizer-file.ts'
import { createBpeTokenizer } from './tokenizer.ts'

const jsonOf = (path: string): unknown =>
  JSON.parse(readFileSync(new URL(`../../../${path}`, import.meta.url), 'utf8'))
const golden = jsonOf('test/golden/tiny/vectors.json') as {
  encode: { text: string; ids: number[] }[]
  decode: { ids: number[]; text: string }[]
  chat: { messages: ChatMessage[]; ids: number[] }[]
}
type Json = Record<string, unknown>
const json = jsonOf('models/tiny6/tokenizer.json') as Json
const config = jsonOf('models/tiny6/tokenizer_config.json') as Json

function tokenizerOf(
  changes: Json = {},
  configChanges: Json = {},
  vocabulary = 8192,
  jinja?: string,
): Tokenizer {
  const files = {
    file: 'tokenizer.json',
    json: { ...json, ...changes },
    configFile: 'tokenizer_config.json',
    config: { ...config, ...configChanges },
  }
  const template = jinja === undefined ? undefined : { file: 'chat_template.jinja', text: jinja }
  return createBpeTokenizer({ ...files, template, vocabulary, endIds: [0, 3] })
}
const tokenizer = tokenizerOf()
const anyText = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 80 }),
  fc.string({ unit: 'grapheme', maxLength: 80 }),
  fc
    .array(
      fc.constantFrom(
        'the ',
        ' of',
        '\n',
        '  ',
        '<|end|>',
        'é',
        '的',
        '🙂',
        "'ll",
        '123',
        '\ufeff',
        '\u0085',
      ),
    )
    .map(parts => parts.join('')),
)
const SPECIAL = ['<eos>', '<|user|>', '<|assistant|>', '<|end|>']
const withSpecial = fc
  .array(fc.oneof(anyText, fc.constantFrom(...SPECIAL)), { maxLength: 6 })
  .map(parts => parts.join(''))
const withoutSpecial = (ids: ArrayLike<number>) => Array.from(ids).filter(id => id >= SPECIAL.length)

describe('the byte-level BPE tokenizer', () => {
  it('gives the same ids as Hugging Face’s tokenizers', () => {
    expect(golden.encode.length).toBeGreaterThan(150)
    for (const { text, ids } of golden.encode)
      expect([...tokenizer.encode(text)], JSON.stringify(text)).toEqual(ids)
  })

  it('decodes any ids like it, including broken characters', () => {
    // These vectors omit special tokens.
    for (const { ids, text } of golden.decode) expect(tokenizer.decode(withoutSpecial(ids))).toBe(text)
  })

  it('renders chats like the template, and treats special tokens in their content as special, like it', () => {
    for (const { messages, ids } of golden.chat) expect([...tokenizer.chat(messages)]).toEqual(ids)
  })

  it('round-trips any text including special tokens; token by token all except those', () => {
    fc.assert(
      fc.property(withSpecial, given => {
        const text = given.toWellFormed()
        const ids = tokenizer.encode(text)
        expect(tokenizer.decode(ids)).toBe(text)
        const parts = tokenizer.stream()
        expect(Array.from(ids, id => parts.push(id)).join('') + parts.end()).toBe(
          tokenizer.decode(withoutSpecial(ids)),
        )
      }),
      { numRuns: 500 },
    )
    expect([...tokenizer.encode('a<|end|>b<eos>')].filter(id => id < 4)).toEqual([3, 0])
  })

  it('never has fewer tokens than leastTokens, in texts and in chats', () => {
    fc.assert(
      fc.property(
        withSpecial,
        fc.array(fc.record({ role: fc.constantFrom('user', 'assistant'), content: withSpecial })),
        (text, messages) => {
          expect(tokenizer.leastTokens(text)).toBeLessThanOrEqual(tokenizer.encode(text).length)
          expect(tokenizer.leastTokens(messages)).toBeLessThanOrEqual(tokenizer.chat(messages).length)
        },
      ),
    )
    // The longest token is 128 spaces.
    expect(tokenizer.leastTokens(' '.repeat(1_281))).toBe(11)
    expect(tokenizer.encode(' '.repeat(1_281)).length).toBeLessThan(14)
    expect(
      tokenizer.leastTokens(Array.from({ length: 100 }, () => ({ role: 'user', content: '' }))),
    ).toBeGreaterThan(10)
  })

  it('writes single tokens like the file', () => {
    const { vocab } = json['model'] as { vocab: Record<string, number> }
    for (const [text, id] of Object.entries(vocab)) expect(tokenizer.tokenString(id)).toBe(text)
    expect(tokenizer.tokenString(3)).toBe('<|end|>')
    expect(tokenizer.tokenString(tokenizer.encode(' the')[0]!)).toBe('Ġthe')
  })

  it('never emits part of a character for any ids, and the pieces make up the text', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 8191 }), { maxLength: 20 }), ids => {
        const parts = tokenizer.stream()
        const said = ids.map(id => parts.push(id))
        expect(said.join('') + parts.end()).toBe(tokenizer.decode(withoutSpecial(ids)))
        // Emitted text is never revised: it is a prefix of the whole.
        expect(said.every(piece => piece.isWellFormed())).toBe(true)
      }),
      { numRuns: 500 },
    )
    const parts = tokenizer.stream()
    const ids = tokenizer.encode('\u{1f9ff}')
    expect(ids.length).toBeGreaterThan(1)
    expect(Array.from(ids, id => parts.push(id))).toEqual([
      ...Array.from(ids.slice(1), () => ''),
      '\u{1f9ff}',
    ])
  })

  it('knows the end-of-text tokens, and emits no text for special ones', () => {
    expect([0, 1, 2, 3, 4].map(id => tokenizer.endsText(id))).toEqual([true, false, false, true, false])
    expect(tokenizer.eosId).toBe(0)
    const parts = tokenizer.stream()
    expect([0, 1, 2, 3].map(id => parts.push(id)).join('') + parts.end()).toBe('')
    expect(tokenizer.decode([0, 1, 2, 3])).toBe(SPECIAL.join(''))
    expect(tokenizer.encode('\ud800')).toEqual(tokenizer.encode('\ufffd'))
  })

  it('merges long words like short ones, and quickly', () => {
    const { byteIds, merges } = parseVocabulary('tokenizer.json', json, 8192)
    const tokensOf = (text: string) => Int32Array.from(Buffer.from(text), byte => byteIds[byte]!)
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom('a', 'b', 'e', 'n', 't', 'th', 'er', '的', 'ж'), maxLength: 200 }),
        text => {
          const [a, b] = [tokensOf(text), tokensOf(text)]
          const [inShort, inLong] = [joinShort(a, a.length, merges), joinLong(b, b.length, merges)]
          expect(b.slice(0, inLong)).toEqual(a.slice(0, inShort))
        },
      ),
    )
    const began = process.cpuUsage()
    const long = 'thing'.repeat(100_000)
    expect(tokenizer.decode(tokenizer.encode(long))).toBe(long)
    expect(process.cpuUsage(began).user / 1e6).toBeLessThan(20) // seconds; quadratic work would take hours
  })
})

describe('tokenizer files that do not fit', () => {
  const model = json['model'] as Json
  const without = (token: string) =>
    Object.fromEntries(Object.entries(model['vocab'] as Json).filter(([text]) => text !== token))
  const vocab = model['vocab'] as Record<string, number>
  const merges = model['merges'] as unknown[]
  const added = json['added_tokens'] as Json[]
  const first = (share: number) => {
    const kept = Object.fromEntries(Object.entries(vocab).filter(([, id]) => id < share * 8192))
    return {
      ...model,
      vocab: kept,
      merges: merges.filter(
        merge =>
          kept[(typeof merge === 'string' ? merge.split(' ') : (merge as string[])).join('')] !== undefined,
      ),
    }
  }
  it.each<[string, Json, Json, number, RegExp]>([
    ['a normalizer', { normalizer: { type: 'NFC' } }, {}, 8192, /normalizer/],
    [
      'another pattern',
      { pre_tokenizer: { type: 'ByteLevel', add_prefix_space: true, use_regex: true } },
      {},
      8192,
      /add_prefix_space/,
    ],
    ['another model', { model: { ...model, type: 'Unigram' } }, {}, 8192, /model\.type/],
    ['no model', { model: undefined }, {}, 8192, /model/],
    ['a byte without token', { model: { ...model, vocab: without('!') } }, {}, 8192, /byte 33/],
    ['a merge of unknown tokens', { model: { ...model, merges: [['zz', 'qqq']] } }, {}, 8192, /merge 0/],
    ['an invalid merge', { model: { ...model, merges: [7] } }, {}, 8192, /merge 0, 7/],
    [
      'an invalid id',
      { model: { ...model, vocab: { ...(model['vocab'] as Json), '!': 'x' } } },
      {},
      8192,
      /not an integer/,
    ],
    [
      'two tokens with one id',
      { model: { ...model, vocab: { ...(model['vocab'] as Json), '!': 5 } } },
      {},
      8192,
      /two tokens/,
    ],
    [
      'a token that no merge produces',
      { model: { ...model, merges: merges.slice(0, -1) } },
      {},
      8192,
      /is produced by no merge/,
    ],
    ['another tokenizer’s merges', { model: { ...model, merges: [] } }, {}, 8192, /is produced by no merge/],
    [
      'a special token with the id of another',
      { added_tokens: [...added, { ...added[0], content: '<x>', id: 500 }] },
      {},
      8192,
      /id 500 has two tokens/,
    ],
    [
      'a special token with two ids',
      { added_tokens: [...added, { ...added[0], content: '!', id: 8_200 }] },
      {},
      8_224,
      /two ids, \d+ and 8200/,
    ],
    [
      'too few tokens for the model',
      { model: first(0.85) },
      {},
      8192,
      /69\d\d tokens for a vocabulary of 8192 in config.json: at least 90 %/,
    ],
    ['a larger vocabulary than the model’s', {}, {}, 8160, /not less than 8160/],
    ['an unknown template', {}, { chat_template: '{{ messages }}' }, 8192, /chat_template/],
    ['a token before every prompt', {}, { add_bos_token: true }, 8192, /add_bos_token/],
  ])('are refused for %s', (_, changes, configChanges, vocabulary, said) => {
    expect(() => tokenizerOf(changes, configChanges, vocabulary)).toThrow(said)
    expect(() => tokenizerOf(changes, configChanges, vocabulary)).toThrow('ELDR_MODEL_UNFIT')
  })

  it('may have fewer tokens than the model has rows, which are padding', () => {
    const padded = tokenizerOf({ model: first(0.95) })
    expect(padded.decode(padded.encode('Any text, 的 too'))).toBe('Any text, 的 too')
    expect([padded.decode([8_191]), padded.tokenString(8_191)]).toEqual(['', ''])
    expect(() => tokenizerOf({}, {}, 8192 + 160)).not.toThrow()
  })

  it('take the template from chat_template.jinja first, as transformers does', () => {
    const known = config['chat_template'] as string
    const chat = [{ role: 'user', content: 'a' }]
    for (const text of [known, `${known}\n`]) {
      expect([...tokenizerOf({}, { chat_template: '{{ messages }}' }, 8192, text).chat(chat)]).toEqual([
        ...tokenizer.chat(chat),
      ])
    }
    expect(() => tokenizerOf({}, {}, 8192, '{{ messages }}')).toThrow(/chat_template.jinja.*ELDR_MODEL_UNFIT/)
  })

  it('may lack a chat template; chats are then refused', () => {
    const bare = tokenizerOf({}, { chat_template: null })
    expect([...bare.encode('a')]).toEqual([...tokenizer.encode('a')])
    expect(() => bare.chat([{ role: 'user', content: 'a' }])).toThrow('no chat template')
  })
})
