import { describe, expect, it } from 'vitest'
import {
  type Api,
  type BadRequest,
  type ClientRequest,
  readRequest,
  type RequestFields,
  withoutFields,
} from './client-request.ts'

const RESERVED = ['kv_transfer_params']
const FIELDS: RequestFields = {
  reservedFields: RESERVED,
  tokenLimits: { chat: ['max_completion_tokens', 'max_tokens'], completions: ['max_tokens'] },
}

function read(api: Api, body: object | string): ClientRequest {
  const bytes = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body))
  const request = readRequest(api, bytes, FIELDS)
  if ('wrong' in request) throw new Error(request.wrong)
  return request
}
const wrong = (api: Api, body: string) => readRequest(api, Buffer.from(body, 'latin1'), FIELDS) as BadRequest
const completion = (more: object) => read('completions', { prompt: 'a', ...more })
const chat = (more: object) => read('chat', { messages: [], ...more })

describe('readRequest', () => {
  it.each([
    ['completions', 'max_tokens', -3],
    ['completions', 'max_tokens', 0],
    ['chat', 'max_completion_tokens', -1],
    ['chat', 'max_tokens', 0.5],
  ] as const)('rejects token limits below 1: %s, %s %d', (api, param, value) => {
    const body = Buffer.from(JSON.stringify({ prompt: 'a', messages: [], [param]: value }))
    expect(readRequest(api, body, FIELDS)).toEqual({ wrong: `${param} must be at least 1.`, param })
  })

  it('takes the token limit that the engine prefers', () => {
    const body = Buffer.from('{"messages":[],"max_tokens":7,"max_completion_tokens":3}')
    const limitBy = (...chat: string[]) =>
      readRequest('chat', body, { ...FIELDS, tokenLimits: { ...FIELDS.tokenLimits, chat } })
    expect(limitBy('max_completion_tokens', 'max_tokens')).toMatchObject({ maxTokens: 3 })
    expect(limitBy('max_tokens', 'max_completion_tokens')).toMatchObject({ maxTokens: 7 })
    expect(limitBy('max_new_tokens')).toMatchObject({ maxTokens: undefined })
  })

  it('uses the last of several members with the same name, as workers do', () => {
    expect(read('completions', '{"prompt":"a","n":2,"n":3,"stream":true,"stream":false}')).toMatchObject({
      choices: 3,
      stream: false,
    })
    expect(read('completions', '{"max_tokens":1,"prompt":"a","max_tokens":7}').maxTokens).toBe(7)
    expect(read('completions', '{"prompt":["a","b"],"prompt":"a"}').prompts).toHaveLength(1)
  })

  it('reads names and values with escapes', () => {
    expect(read('completions', '{"pr\\u006fmpt":"a","\\u006e":2,"\\u0073tream":true}')).toMatchObject({
      choices: 2,
      stream: true,
    })
    expect(read('completions', '{"prompt":"\\"n\\":9,\\"stream\\":true}","n":2}')).toMatchObject({
      choices: 2,
      stream: false,
    })
  })

  it('ignores nested members', () => {
    expect(
      read('chat', { messages: [{ n: 5, stream: true }], metadata: { n: 6, stream: true } }),
    ).toMatchObject({
      choices: 1,
      stream: false,
    })
  })

  it('uses the API’s defaults for absent and null members', () => {
    expect(completion({})).toMatchObject({
      stream: false,
      includeUsage: false,
      choices: 1,
      maxTokens: 16,
      seed: undefined,
      whole: false,
    })
    expect(chat({})).toMatchObject({
      stream: false,
      includeUsage: false,
      choices: 1,
      maxTokens: undefined,
      prompts: [],
      whole: false,
    })
    expect(completion({ n: null, stream: null, stream_options: null, seed: null })).toMatchObject({
      choices: 1,
      stream: false,
    })
  })

  it('prefers max_completion_tokens over max_tokens for chat, and uses only max_tokens for completions', () => {
    expect(chat({ max_tokens: 5, max_completion_tokens: 7 }).maxTokens).toBe(7)
    expect(chat({ max_tokens: 5, max_completion_tokens: null }).maxTokens).toBe(5)
    expect(chat({ max_tokens: 5 }).maxTokens).toBe(5)
    expect(completion({ max_tokens: 5, max_completion_tokens: 7 }).maxTokens).toBe(5)
    expect(completion({ max_completion_tokens: 7 }).maxTokens).toBe(16)
    expect(completion({ max_tokens: null }).maxTokens).toBeUndefined()
    expect(completion({ max_tokens: 'many' }).maxTokens).toBeUndefined()
  })

  it('includes usage only if include_usage is true', () => {
    expect(completion({ stream: true, stream_options: { include_usage: true } }).includeUsage).toBe(true)
    for (const options of [{ include_usage: 'true' }, { include_usage: 1 }, [true], 'include_usage', {}]) {
      expect(completion({ stream: true, stream_options: options }).includeUsage).toBe(false)
    }
  })

  it('reads only whole numbers as seed', () => {
    expect([7, -1, 7.5, '7', true].map(seed => completion({ seed }).seed)).toEqual([
      7,
      -1,
      undefined,
      undefined,
      undefined,
    ])
  })
})

describe('requests that cannot be split or handed off', () => {
  it.each([
    ['completions', { best_of: 2 }, true],
    ['completions', { best_of: 1 }, false],
    ['completions', { best_of: null }, false],
    ['completions', { use_beam_search: true }, true],
    ['completions', { use_beam_search: false, n: 4 }, false],
    ['chat', { use_beam_search: true }, true],
    ['completions', { prompt_logprobs: 0 }, true],
    ['completions', { prompt_logprobs: 5 }, true],
    ['completions', { prompt_logprobs: null }, false],
    ['chat', { prompt_logprobs: 1 }, true],
    ['completions', { echo: true, logprobs: 1 }, true],
    ['completions', { echo: true, logprobs: 0 }, true],
    ['completions', { echo: true }, false],
    ['completions', { echo: true, logprobs: null }, false],
    ['completions', { echo: false, logprobs: 1 }, false],
    ['completions', { logprobs: 1 }, false],
  ] as const)('%s with %j: %s', (api, more, whole) => {
    expect((api === 'chat' ? chat(more) : completion(more)).whole).toBe(whole)
  })
})

describe('prompts of a completion', () => {
  const prompts = (prompt: unknown) => {
    const { body, prompts } = completion({ prompt })
    return prompts.map(({ start, end }) => body.toString('utf8', start, end))
  }

  it('are a string, a list of ids, or a list of either', () => {
    expect(prompts('abc')).toEqual(['"abc"'])
    expect(prompts([1, 2, 3])).toEqual(['[1,2,3]'])
    expect(prompts(['a', 'b,c', ']'])).toEqual(['"a"', '"b,c"', '"]"'])
    expect(prompts([[1, 2], [3]])).toEqual(['[1,2]', '[3]'])
    expect(prompts([])).toEqual(['[]'])
    expect(prompts(null)).toEqual(['null'])
  })

  it('are estimated at four bytes per token, or counted by their ids', () => {
    expect(completion({ prompt: 'x'.repeat(398) }).promptTokens).toBe(100)
    expect(completion({ prompt: Array.from({ length: 70 }, (_, id) => id) }).promptTokens).toBe(70)
    expect(completion({ prompt: [[1, 2], [3]] }).promptTokens).toBe(3)
    expect(chat({ messages: [{ role: 'user', content: 'x'.repeat(400) }] }).promptTokens).toBeGreaterThan(100)
  })
})

describe('request body', () => {
  it.each([
    ['completions', '', undefined],
    ['completions', 'null', undefined],
    ['completions', '[]', undefined],
    ['completions', '{"prompt":"a"', undefined],
    ['completions', '{"prompt":"a"} x', undefined],
    ['completions', '{"prompt":"\xff"}', undefined],
    ['completions', '\xff\xfe{\0}\0', undefined],
    ['completions', '{"model":"a"}', 'prompt'],
    ['chat', '{"prompt":"a"}', 'messages'],
    ['completions', '{"prompt":"a","stream":"true"}', 'stream'],
    ['completions', '{"prompt":"a","stream":1}', 'stream'],
    ['completions', '{"prompt":"a","n":0}', 'n'],
    ['completions', '{"prompt":"a","n":-1}', 'n'],
    ['completions', '{"prompt":"a","n":1.5}', 'n'],
    ['completions', '{"prompt":"a","n":"2"}', 'n'],
    ['completions', '{"prompt":"a","n":1e999}', 'n'],
    ['completions', '{"prompt":"a","n":true}', 'n'],
    ['completions', '{"prompt":"a","n":[1]}', 'n'],
  ] as const)('of %s is rejected: %j (param %s)', (api, body, param) => {
    expect(wrong(api, body)).toEqual({
      wrong: expect.stringMatching(/\.$/) as string,
      ...(param !== undefined && { param }),
    })
  })

  it('loses a leading byte order mark', () => {
    const { body } = read('completions', '\ufeff{"prompt":"a"}')
    expect(body.toString()).toBe('{"prompt":"a"}')
  })

  it('loses reserved fields, escaped or not, and nothing else', () => {
    for (const name of ['kv_transfer_params', 'kv_transfer\\u005fparams']) {
      const { body, members } = read(
        'completions',
        `{"prompt":"a", "${name}":{"remote_host":"x"},"n":1,"${name}":1}`,
      )
      expect(JSON.parse(body.toString())).toEqual({ prompt: 'a', n: 1 })
      expect(members.map(member => member.name)).toEqual(['prompt', 'n'])
    }
    const other = Buffer.from('{"a": {"kv_transfer_params":1}}')
    expect(withoutFields(other, RESERVED).body).toBe(other)
    expect(withoutFields(Buffer.from('no object'), RESERVED).body.toString()).toBe('no object')
  })
})
