import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { vllmNixl } from '../../engines/vllm-nixl.ts'
import { type ClientRequest, readRequest } from '../../http/client-request.ts'
import { EventSplitter } from './event-splitter.ts'
import { mergeResponses, mergeUsage, rewriteEvent } from './merge.ts'
import { partsOf, split } from './split.ts'

const ENGINE = vllmNixl({ reuseTokenIds: false })
const read = (body: object) =>
  readRequest(
    'messages' in body ? 'chat' : 'completions',
    Buffer.from(JSON.stringify(body)),
    ENGINE,
  ) as ClientRequest
const bodies = (request: ClientRequest) =>
  split(request).map(part => JSON.parse(part.request.body.toString()) as Record<string, unknown>)

describe('split', () => {
  it('makes one part per choice of each prompt, in the order of the API', () => {
    const request = read({ prompt: ['a', 'b'], n: 2, seed: 7, max_tokens: 3 })
    expect(partsOf(request)).toBe(4)
    expect(bodies(request)).toEqual([
      { prompt: 'a', n: 1, seed: 7, max_tokens: 3 },
      { prompt: 'a', n: 1, seed: 8, max_tokens: 3 },
      { prompt: 'b', n: 1, seed: 7, max_tokens: 3 },
      { prompt: 'b', n: 1, seed: 8, max_tokens: 3 },
    ])
    expect(split(request).map(({ index, firstOfPrompt }) => [index, firstOfPrompt])).toEqual([
      [0, true],
      [1, false],
      [2, true],
      [3, false],
    ])
  })

  it('tells lists of token ids from lists of prompts', () => {
    expect(partsOf(read({ prompt: [1, 2, 3] }))).toBe(1)
    expect(bodies(read({ prompt: [[1, 2], [3]] })).map(({ prompt }) => prompt)).toEqual([[1, 2], [3]])
    expect(partsOf(read({ prompt: ['only'] }))).toBe(1)
    expect(partsOf(read({ messages: [], n: 3 }))).toBe(3)
    expect(partsOf(read({ prompt: [] }))).toBe(1)
  })
})

describe('merging responses', () => {
  const parts = split(read({ prompt: ['a', 'b'], n: 2 }))
  const response = (text: string, prompt: number, cached?: number) => ({
    id: 'cmpl-x-0',
    model: 'm',
    choices: [{ index: 0, text }],
    usage: {
      prompt_tokens: prompt,
      completion_tokens: 5,
      total_tokens: prompt + 5,
      ...(cached !== undefined && { prompt_tokens_details: { cached_tokens: cached } }),
    },
    kv_transfer_params: null,
  })

  it('gives each choice its index and counts each prompt once', () => {
    expect(
      mergeResponses(
        'cmpl-x',
        parts,
        [response('a0', 10, 4), response('a1', 10, 10), response('b0', 20, 0), response('b1', 20, 20)],
        ['kv_transfer_params'],
      ),
    ).toEqual({
      id: 'cmpl-x',
      model: 'm',
      choices: ['a0', 'a1', 'b0', 'b1'].map((text, index) => ({ index, text })),
      usage: {
        prompt_tokens: 30,
        completion_tokens: 20,
        total_tokens: 50,
        prompt_tokens_details: { cached_tokens: 4 },
      },
    })
    expect(mergeUsage(parts, [undefined, undefined, undefined, undefined])).toEqual({
      prompt_tokens: 0,
      completion_tokens: 0,
      total_tokens: 0,
    })
  })

  it('sets the id and index of events and drops events that contain only usage', () => {
    expect(rewriteEvent('c', 3, { id: 'c-3', choices: [{ index: 0, delta: {} }], usage: null })).toEqual({
      id: 'c',
      choices: [{ index: 3, delta: {} }],
    })
    expect(rewriteEvent('c', 3, { id: 'c-3', choices: [], usage: {} })).toBeUndefined()
  })
})

describe('EventSplitter', () => {
  it('returns the same events however the stream is chunked', () => {
    const events = fc.array(fc.string().map(text => JSON.stringify({ text })))
    fc.assert(
      fc.property(events, fc.array(fc.nat(), { maxLength: 8 }), (list, cuts) => {
        const bytes = Buffer.from(`: hello\n\n${list.map(event => `data: ${event}\n\n`).join('')}`)
        const places = [0, ...cuts.map(cut => cut % bytes.length), bytes.length].toSorted((a, b) => a - b)
        const splitter = new EventSplitter()
        expect(places.slice(1).flatMap((to, i) => splitter.push(bytes.subarray(places[i], to)))).toEqual(list)
      }),
    )
  })
})
