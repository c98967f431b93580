import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Progress } from './progress.ts'
import { TokenEvents } from './token-events.ts'

const start = (chat: boolean) =>
  `data: {"id":"c-1","object":"${chat ? 'chat.completion.chunk' : 'text_completion'}","created":7,"model":"m","choices":[`

interface Token {
  readonly text: string
  readonly ids: readonly number[]
}

/** Events as vLLM writes them. `tail`: members after the choices. */
function eventsOf(tokens: readonly Token[], chat: boolean, tail: string): string[] {
  const role = `${start(chat)}{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":[4,5,6]}\n\n`
  const events = tokens.map(({ text, ids }, at) => {
    const isLast = at === tokens.length - 1
    const said = chat ? `"delta":{"content":${JSON.stringify(text)}}` : `"text":${JSON.stringify(text)}`
    const prompt = chat ? '' : `,"prompt_token_ids":${at === 0 ? '[4,5,6]' : 'null'}`
    const reason = isLast ? '"stop"' : 'null'
    const stop = chat && !isLast ? '' : ',"stop_reason":null'
    return `${start(chat)}{"index":0,${said},"logprobs":null,"finish_reason":${reason}${stop}${prompt},"token_ids":[${ids.join()}]}]${tail}}\n\n`
  })
  return [...(chat ? [role] : []), ...events, 'data: [DONE]\n\n']
}

const tokens = fc.array(
  fc.record({
    text: fc.oneof(
      fc.string({ unit: 'binary', maxLength: 5 }),
      fc.constantFrom('', '"', '"token_ids":[9]', '\\'),
    ),
    ids: fc.array(fc.nat(200_000), { minLength: 1, maxLength: 3 }),
  }),
  { minLength: 1, maxLength: 12 },
)

describe('TokenEvents', () => {
  it('keeps all ids and the last cut, and passes the events without ids, however they are chunked', () => {
    fc.assert(
      fc.property(
        tokens,
        fc.boolean(),
        fc.constantFrom('', ',"usage":null'),
        fc.array(fc.nat(), { maxLength: 4 }),
        (list, chat, tail, cuts) => {
          const events = eventsOf(list, chat, tail)
          const bytes = Buffer.from(events.join(''))
          const ends = events.reduce<number[]>((all, event) => {
            return [...all, (all.at(-1) ?? 0) + Buffer.byteLength(event)]
          }, [])
          // Mostly one event per chunk, as in a real stream.
          const places = [...new Set([0, ...ends, ...cuts.map(cut => cut % bytes.length)])].toSorted(
            (a, b) => a - b,
          )
          const progress = new Progress(1_000, 0)
          const stream = new TokenEvents(progress, false)
          const out = places
            .slice(1)
            .flatMap((to, i) => stream.push(Buffer.from(bytes.subarray(places[i], to))) ?? [])
          const parse = (text: string) =>
            text
              .split('\n\n')
              .filter(event => event !== '' && event !== 'data: [DONE]')
              .map(event => JSON.parse(event.slice(6)) as unknown)
          const withoutIds = eventsOf(list, chat, tail)
            .join('')
            .replaceAll(/("(?:prompt_)?token_ids":)\[[\d,]*\]/g, '$1null')
          expect(parse(Buffer.concat(out).toString())).toEqual(parse(withoutIds))
          expect(progress.ids).toEqual(list.flatMap(({ ids }) => ids))
          expect(progress).toMatchObject({
            promptIds: '[4,5,6]',
            promptTokens: 3,
            finished: true,
            obstacle: undefined,
          })
          const withText = list.findLastIndex(({ text }) => text !== '')
          expect(progress.cut).toBe(list.slice(0, withText + 1).flatMap(({ ids }) => ids).length)
          expect([stream.done, stream.failed]).toEqual([true, false])
        },
      ),
    )
  })

  it('keeps the framing: where a list of ids stood, there are as many bytes', () => {
    const stream = new TokenEvents(new Progress(100, 0), false)
    const list = Array.from({ length: 4 }, (_, i) => ({ text: 'a', ids: [1_000 + i] }))
    const chunks = eventsOf(list, true, '').map(event => Buffer.from(event))
    const passed = chunks.map(chunk => stream.push(chunk))
    expect(passed[3]).toBe(chunks[3])
    expect(passed[3]!.toString()).toContain('"token_ids":null  }]}')
  })

  it('gives up on a stream with reasoning, without ids, or with too many tokens', () => {
    const obstacle = (events: readonly string[], maxTokens = 100) => {
      const progress = new Progress(maxTokens, 0)
      const stream = new TokenEvents(progress, false)
      for (const event of events) stream.push(Buffer.from(event))
      return [progress.obstacle, progress.ids.length]
    }
    const list = Array.from({ length: 6 }, (_, i) => ({ text: 'a', ids: [i] }))
    const plain = eventsOf(list, true, '')
    expect(obstacle(plain)).toEqual([undefined, 6])
    expect(obstacle(plain, 8)).toEqual(['too_long', 0])
    expect(obstacle(plain.map(event => event.replace('"content":"a"', '"reasoning":"a"')))[0]).toBe('parsed')
    const last = plain.with(4, plain[4]!.replace('"content":"a"', '"reasoning":"a"'))
    expect(obstacle(last)[0]).toBe('parsed')
    expect(obstacle(plain.map(event => event.replaceAll(/"token_ids":\[\d\]/g, '"token_ids":null')))[0]).toBe(
      'no_ids',
    )
  })

  it('goes back far enough for text that a worker held back', () => {
    const progress = new Progress(100, 4)
    for (let id = 0; id < 5; id++) {
      progress.ids.push(id)
      progress.added(2)
    }
    expect(progress.cut).toBe(3)
    const short = new Progress(100, 40)
    short.ids.push(1)
    short.added(2)
    expect([short.cut, short.overlaps]).toEqual([0, true])
  })
})

describe('Progress', () => {
  it('forgets what an attempt read of which the client got nothing', () => {
    const progress = new Progress(1000, 0)
    const read = (...texts: readonly string[]) => {
      const events = new TokenEvents(progress, false)
      const said = texts.map((text, at) => ({ text, ids: [10 + at] }))
      for (const event of eventsOf([...said, { text: 'end', ids: [99] }], false, '').slice(0, said.length))
        events.push(Buffer.from(event))
    }
    read('lost', 'twice')
    progress.rewind()
    read('a', 'b')
    expect([progress.ids, progress.cut]).toEqual([[10, 11], 2])
    progress.mark()
    progress.ids.push(7)
    progress.added(1)
    progress.finished = true
    progress.rewind()
    expect([progress.ids, progress.cut, progress.finished]).toEqual([[10, 11], 2, false])
  })
})
