import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { EOS_ID, replayTokenizer, wordId } from './tokenizer.ts'
import { WORDS } from './words.ts'

const { encode, decode, stream, chat, size } = replayTokenizer
const whole = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 60 }),
  fc.string({ unit: 'grapheme' }),
  fc
    .array(fc.constantFrom(...WORDS.slice(0, 30), ' ', 'Ab', '.', 'é', '🙂', '\n', '\ufeff'))
    .map(parts => parts.join('')),
)

describe('the tokenizer of replay', () => {
  it('round-trips any text, at once and token by token', () => {
    fc.assert(
      fc.property(whole, text => {
        const ids = encode(text)
        expect(decode(ids)).toBe(text)
        const parts = stream()
        expect(Array.from(ids, id => parts.push(id)).join('') + parts.end()).toBe(text)
        for (const id of ids) expect(id).toBeLessThan(EOS_ID)
      }),
    )
  })

  it('has a token for each plain word with a leading space', () => {
    expect(new Set(WORDS).size).toBe(WORDS.length)
    expect([...encode('river stone')].length).toBe(2)
    expect(encode('rivers')).toHaveLength(6)
    expect(encode('River')).toHaveLength(5)
    expect(encode(' river.')).toHaveLength(2)
    expect(decode([wordId(0), wordId(WORDS.length + 1)])).toBe(` ${WORDS[0]} ${WORDS[1]}`)
  })

  it('tokenizes generated text back to the same tokens', () => {
    fc.assert(
      fc.property(fc.array(fc.nat()), choices => {
        const ids = choices.map(wordId)
        expect([...encode(decode(ids))]).toEqual(ids)
      }),
    )
  })

  it('holds back incomplete characters', () => {
    const parts = stream()
    const [first, ...rest] = encode('é')
    expect(parts.push(first!)).toBe('')
    expect(parts.push(rest[0]!)).toBe('é')
    parts.push(first!)
    expect(parts.end()).toBe('\ufffd')
  })

  it('has chat marks that no content can spell', () => {
    const prompt = chat([
      { role: 'user', content: 'stone' },
      { role: 'critic', content: '' },
    ])
    expect(prompt).toHaveLength(1 + 1 + 1 + 1 + 7 + 1 + 1)
    for (const id of prompt) expect(id).toBeLessThan(size)
    expect(decode(prompt)).toBe('stonecritic:')
    expect(prompt).not.toEqual(chat([{ role: 'user', content: 'stonecritic:' }]))
  })

  it('never has fewer tokens than leastTokens, in texts and in chats', () => {
    const text = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.array(fc.constantFrom(...WORDS)).map(words => ` ${words.join(' ')}`),
    )
    const messages = fc.array(fc.record({ role: fc.constantFrom('user', 'tool', 'other'), content: text }))
    fc.assert(
      fc.property(text, messages, (text, messages) => {
        expect(replayTokenizer.leastTokens(text)).toBeLessThanOrEqual(replayTokenizer.encode(text).length)
        expect(replayTokenizer.leastTokens(messages)).toBeLessThanOrEqual(
          replayTokenizer.chat(messages).length,
        )
      }),
    )
    expect(replayTokenizer.leastTokens(' '.repeat(1_000_000))).toBeGreaterThan(50_000)
    expect(
      replayTokenizer.leastTokens(Array.from({ length: 1_000 }, () => ({ role: 'user', content: '' }))),
    ).toBe(2_000)
  })
})
