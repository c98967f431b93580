import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { StreamReader } from './stream-reader.ts'

const event = (value: unknown) => `data: ${JSON.stringify(value)}\n\n`
const text = (said: string, reason: string | null = null) => ({
  choices: [{ index: 0, text: said, finish_reason: reason }],
})
const delta = (said: object, reason: string | null = null) => ({
  choices: [{ index: 0, delta: said, finish_reason: reason }],
})
const USAGE = { choices: [], usage: { prompt_tokens: 7, completion_tokens: 3 } }
const DONE = 'data: [DONE]\n\n'

/** Pushes one chunk per call, 1 ms apart. */
function read(api: 'completions' | 'chat', ...pieces: string[]): StreamReader {
  const reader = new StreamReader(api)
  pieces.forEach((piece, at) => reader.push(Buffer.from(piece), at))
  reader.end(pieces.length)
  return reader
}

describe('StreamReader', () => {
  it('counts events with text and takes the arrival times of their chunks', () => {
    const reader = read(
      'completions',
      event(text('a')),
      event(text('b')),
      event(text('c', 'length')),
      event(USAGE),
      DONE,
    )
    expect(reader).toMatchObject({
      events: 3,
      firstMs: 0,
      lastMs: 2,
      done: true,
      finished: true,
      error: undefined,
      garbage: undefined,
    })
    expect(reader.gapsMs).toEqual([1, 1])
    expect(reader.usage).toEqual({ promptTokens: 7, completionTokens: 3 })
  })

  it('does not count a chat’s first event or an empty last event as tokens', () => {
    const reader = read(
      'chat',
      event(delta({ role: 'assistant', content: '' })),
      event(delta({ content: 'a' })),
      event(delta({ content: 'b' })),
      event(delta({}, 'stop')),
      DONE,
    )
    expect(reader).toMatchObject({ events: 2, firstMs: 1, lastMs: 2, finished: true })
  })

  it.each([{ reasoning_content: 'hm' }, { reasoning: 'hm' }, { content: null, tool_calls: [{ index: 0 }] }])(
    'counts %j as a token',
    said => {
      expect(read('chat', event(delta(said)), DONE).events).toBe(1)
    },
  )

  it('reads spaces after colons, CRLF, comments, and no space after data:', () => {
    const reader = read(
      'completions',
      ': ping\r\n\r\n',
      'data:{"choices": [{"text": "a"}]}\r\n\r\n',
      'event: x\r\ndata: {"choices": [{"text": ""}]}\r\n\r\n',
      'data: [DONE]\r\n\r\n',
    )
    expect(reader).toMatchObject({ events: 1, done: true, garbage: undefined })
  })

  it('is not fooled by text that looks like a key', () => {
    expect(
      read('completions', event(text('', 'stop')), event({ choices: [], note: '"text":"x"' }), DONE).events,
    ).toBe(0)
    expect(read('chat', event(delta({ content: '"content":""' })), DONE).events).toBe(1)
    expect(
      read('chat', event({ choices: [{ delta: { content: 'a' }, logprobs: { content: [] } }] }), DONE).events,
    ).toBe(1)
  })

  it('finds usage and a finish reason in the last token’s event, and without [DONE]', () => {
    const last = { ...text('b', 'length'), usage: { prompt_tokens: 1, completion_tokens: 2 } }
    expect(
      read(
        'completions',
        event({ ...text('a'), usage: { prompt_tokens: 1, completion_tokens: 1 } }),
        event(last),
      ),
    ).toMatchObject({
      finished: true,
      done: false,
      usage: { completionTokens: 2 },
    })
  })

  it('hashes text if asked to: the same text has the same hash, however it is split into events', () => {
    const hashed = (...says: string[]) => {
      const reader = new StreamReader('completions', { hash: true })
      reader.push(Buffer.from(says.map(one => event(text(one))).join('') + event(USAGE) + DONE), 0)
      reader.end(0)
      return reader.digest()
    }
    expect(hashed('a "quoted" word', ' and')).toBe(hashed('a "quoted"', ' word and'))
    expect(hashed('a')).not.toBe(hashed('b'))
    expect(hashed('a\\')).not.toBe(hashed('a'))
    expect(new StreamReader('completions').digest()).toBeUndefined()
  })

  it('reports errors of the server and invalid events', () => {
    expect(
      read('completions', event(text('a')), event({ error: { message: 'engine\n died' } }), DONE).error,
    ).toBe('engine died')
    expect(read('completions', 'data: {"choices": [\n\n').garbage).toMatch(/not JSON/)
    expect(read('completions', 'x'.repeat(5 << 20)).garbage).toMatch(/a line of more than/)
  })

  it('counts the same however the bytes are split, and the same as a reader that parses every event', () => {
    const said = fc.oneof(
      fc.constant(''),
      fc.string({ unit: 'binary' }),
      fc.constantFrom('"text":"', '\\"content\\":""', '\n', '"content"'),
    )
    const streams = fc.record({
      api: fc.constantFrom('completions' as const, 'chat' as const),
      says: fc.array(said, { maxLength: 12 }),
      cuts: fc.array(fc.nat(600)),
    })
    fc.assert(
      fc.property(streams, ({ api, says, cuts }) => {
        const bytes = Buffer.from(
          says.map(one => event(api === 'chat' ? delta({ content: one }) : text(one))).join('') +
            event(USAGE) +
            DONE,
        )
        const reader = new StreamReader(api, { hash: true })
        const whole = new StreamReader(api, { hash: true })
        whole.push(bytes, 0)
        const places = [0, ...cuts.filter(cut => cut < bytes.length).sort((a, b) => a - b), bytes.length]
        for (let i = 1; i < places.length; i++) reader.push(bytes.subarray(places[i - 1], places[i]), i)
        reader.end(places.length)
        expect(reader).toMatchObject({
          events: says.filter(one => one !== '').length,
          done: true,
          garbage: undefined,
        })
        expect(reader.usage?.completionTokens).toBe(3)
        expect(reader.digest()).toBe(whole.digest())
      }),
    )
  })
})
