import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { vllmNixl } from '../engines/vllm-nixl.ts'
import { prefixKeyOf, turnOf } from './prefix-key.ts'
import { type Api, type ClientRequest, readRequest } from '../http/client-request.ts'

const TOKENS = 64
const ENGINE = vllmNixl({ reuseTokenIds: false })
const keyOf = (api: Api, body: string, tokens = TOKENS) =>
  prefixKeyOf(readRequest(api, Buffer.from(body), ENGINE) as ClientRequest, tokens)
const chatKey = (messages: unknown, more: object = {}, space?: number) =>
  keyOf('chat', JSON.stringify({ ...more, messages }, null, space))
const promptKey = (prompt: unknown) => keyOf('completions', JSON.stringify({ prompt }))

const SYSTEM = { role: 'system', content: 'You answer in the style of a lighthouse keeper. '.repeat(8) }
const USER = { role: 'user', content: 'Which way to the sea?' }

describe('prefix key of a chat', () => {
  it('depends on the leading text only', () => {
    expect(chatKey([SYSTEM, USER])).toBe(
      chatKey([SYSTEM, { role: 'user', content: 'Quite another question' }, USER]),
    )
    expect(chatKey([SYSTEM, USER])).toBe(
      chatKey([SYSTEM, USER], { temperature: 1, model: 'x', stream: true }),
    )
  })

  it('ignores the order of members, white space and escapes', () => {
    const turned = [{ content: USER.content, role: 'user' }]
    expect(chatKey(turned)).toBe(chatKey([USER]))
    expect(chatKey([USER], {}, 2)).toBe(chatKey([USER]))
    const text = '{"messages":[{"role":"user","content":"née “\\n” 😀"}]}'
    const escaped =
      '{"messages" : [ {"role":"\\u0075ser","content":"n\\u00e9e \\u201c\\u000a\\u201d \\ud83d\\ude00"}]}'
    expect(keyOf('chat', escaped)).toBe(keyOf('chat', text))
  })

  it('uses the text of content parts, and other parts as they are', () => {
    const parts = [{ role: 'user', content: [{ text: USER.content, type: 'text' }] }]
    expect(chatKey(parts)).toBe(chatKey([USER]))
    const image = (url: string) => [{ role: 'user', content: [{ type: 'image_url', image_url: { url } }] }]
    expect(chatKey(image('a'))).not.toBe(chatKey(image('b')))
  })

  it('differs by system prompt, tools and roles', () => {
    const keys = [
      chatKey([SYSTEM, USER]),
      chatKey([{ ...SYSTEM, content: `No. ${SYSTEM.content}` }, USER]),
      chatKey([{ ...SYSTEM, role: 'developer' }, USER]),
      chatKey([USER]),
      chatKey([{ ...USER, name: 'b' }]),
      chatKey([SYSTEM, USER], { tools: [{ type: 'function', function: { name: 'f' } }] }),
      chatKey([SYSTEM, USER], { tools: [{ type: 'function', function: { name: 'g' } }] }),
    ]
    expect(new Set(keys).size).toBe(keys.length)
  })

  it('separates adjacent values', () => {
    expect(chatKey([{ role: 'user', content: 'ab' }])).not.toBe(chatKey([{ role: 'usera', content: 'b' }]))
    expect(chatKey([{ role: 'a', content: '' }, { role: 'b' }])).not.toBe(
      chatKey([{ role: 'a', content: 'b' }]),
    )
  })

  it('is undefined without messages that have text', () => {
    expect([chatKey([]), chatKey('text'), chatKey([1]), chatKey([{}])]).toEqual([
      undefined,
      undefined,
      undefined,
      undefined,
    ])
  })
})

describe('prefix key of a prompt', () => {
  it('depends on the leading text or ids of the first prompt', () => {
    const text = 'Once upon a time there was a router. '.repeat(20)
    expect(promptKey(`${text}and then`)).toBe(promptKey(`${text}but`))
    expect(promptKey([text, 'b'])).toBe(promptKey(text))
    expect(promptKey(`Twice ${text}`)).not.toBe(promptKey(text))
    const ids = Array.from({ length: 500 }, (_, at) => 1000 + at)
    expect(promptKey([...ids, 1])).toBe(promptKey([...ids, 2, 3]))
    expect(promptKey([7, ...ids])).not.toBe(promptKey(ids))
    expect(keyOf('completions', '{"prompt":[1, 2,\n 3]}')).toBe(promptKey([1, 2, 3]))
    expect(promptKey([[1, 2], [3]])).toBe(promptKey([1, 2]))
    expect(promptKey([1, 2])).not.toBe(promptKey([12]))
  })

  it('is a 32-bit number for any text and ignores escapes', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'grapheme', minLength: 1 }),
        fc.integer({ min: 1, max: 8 }),
        (prompt, tokens) => {
          const escaped = Array.from(
            { length: prompt.length },
            (_, at) => `\\u${prompt.charCodeAt(at).toString(16).padStart(4, '0')}`,
          ).join('')
          const key = keyOf('completions', JSON.stringify({ prompt }), tokens)!
          expect(key).toBe(keyOf('completions', `{"prompt":"${escaped}"}`, tokens))
          expect(key).toBe(key >>> 0)
        },
      ),
    )
  })

  it('accepts invalid escapes', () => {
    expect(keyOf('completions', '{"prompt":"\\q \\u12"}')).toEqual(expect.any(Number))
  })
})

describe('keys of a turn', () => {
  const turn = (api: Api, body: object) =>
    turnOf(readRequest(api, Buffer.from(JSON.stringify(body)), ENGINE) as ClientRequest)
  const REPLY = { role: 'assistant', content: 'Down the hill.' }

  it('of a chat are also keys of the next turn, whatever was replied', () => {
    const [first, next] = [
      turn('chat', { messages: [SYSTEM, USER] })!,
      turn('chat', { messages: [SYSTEM, USER, REPLY, USER] })!,
    ]
    expect(first.keys).toHaveLength(2)
    expect(next.keys.slice(0, 2)).toEqual(first.keys)
    expect(new Set(next.keys).size).toBe(4)
    expect(next.tokens).toBeGreaterThan(first.tokens)
    const other = turn('chat', { messages: [SYSTEM, { role: 'user', content: 'Which way?' }] })!
    expect(other.keys[0]).toBe(first.keys[0])
    expect(other.keys[1]).not.toBe(first.keys[1])
  })

  it('differ between models and cache salts, which share no KV cache', () => {
    const keys = [{}, { model: 'a' }, { model: 'b' }, { model: 'a', cache_salt: 'mine' }].map(
      more => turn('chat', { messages: [USER], ...more })!.keys[0],
    )
    expect(new Set(keys).size).toBe(4)
  })

  it('of a prompt are those of its whole blocks, the last 128 of them', () => {
    const text = Array.from({ length: 40_000 }, (_, i) => `${i} `).join('')
    const keys = (length: number) => turn('completions', { prompt: text.slice(0, length) })?.keys
    expect(keys(400)).toBeUndefined()
    expect(keys(1_100)).toHaveLength(2)
    expect(keys(5_000)!.slice(0, 2)).toEqual(keys(1_100))
    expect(keys(200_000)).toHaveLength(128)
    expect(keys(200_000)).toContain(keys(180_000)!.at(-1))
    expect(turn('completions', { prompt: Array.from({ length: 300 }, (_, i) => i) })!.keys).toHaveLength(2)
  })
})
