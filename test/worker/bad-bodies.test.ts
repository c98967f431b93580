/**
 * Every kind of refused body, with vLLM’s status and shape. None reaches the engine, and none affects the
 * next request.
 */
import { request as httpRequest } from 'node:http'
import * as fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { type Served, serveScripted } from './served.ts'

let served: Served
let LEAST: Served['engine']['tokenizer']['leastTokens']
beforeAll(async () => {
  served = await serveScripted({ maxBodyBytes: 100_000 })
  LEAST = served.engine.tokenizer.leastTokens
})
afterAll(() => served.worker.stop())

const OK = { prompt: 'abc' }
const CHAT = { messages: [{ role: 'user', content: 'a' }] }

async function refused(path: string, body: unknown) {
  const answer = await served.post(path, body)
  const { error } = (await answer.json()) as {
    error: { message: string; type: string; param: string | null; code: number }
  }
  expect(Object.keys(error)).toEqual(['message', 'type', 'param', 'code'])
  expect(error.code).toBe(answer.status)
  expect(served.engine.requests).toEqual([])
  return [answer.status, error.type, error.param, error.message] as const
}

describe('a completion is refused', () => {
  it.each<[string, unknown, number, string, string | null, string]>([
    ['invalid JSON', '{"prompt":', 400, 'Bad Request', null, 'JSON decode error'],
    ['an empty body', '', 400, 'Bad Request', null, 'JSON decode error'],
    ['a list', [], 400, 'Bad Request', null, 'valid dictionary'],
    ['null', 'null', 400, 'Bad Request', null, 'valid dictionary'],
    ['no prompt', {}, 400, 'BadRequestError', 'prompt', 'must be provided and non-empty'],
    ['an empty prompt', { prompt: '' }, 400, 'BadRequestError', 'prompt', 'must be provided and non-empty'],
    ['an empty list', { prompt: [] }, 400, 'BadRequestError', 'prompt', 'must be provided and non-empty'],
    ['a prompt of another type', { prompt: { a: 1 } }, 400, 'Bad Request', 'prompt', 'valid string'],
    ['several prompts', { prompt: ['a', 'b'] }, 400, 'BadRequestError', 'prompt', 'one prompt per request'],
    ['ids that are not integers', { prompt: [1, 'a'] }, 400, 'Bad Request', 'prompt', 'valid integer'],
    ['ids below 0', { prompt: [1, -1] }, 400, 'Bad Request', 'prompt', 'greater than or equal to 0'],
    [
      'ids beyond the vocabulary',
      { prompt: [1, 5_000] },
      400,
      'BadRequestError',
      'prompt',
      'Token id 5000 is out of vocabulary',
    ],
    ['ids beyond 31 bits', { prompt: [2 ** 40] }, 400, 'BadRequestError', 'prompt', 'out of vocabulary'],
    [
      'an unknown model',
      { ...OK, model: 'other' },
      404,
      'NotFoundError',
      'model',
      'The model `other` does not exist.',
    ],
    ['a model of another type', { ...OK, model: 5 }, 400, 'Bad Request', 'model', 'valid string'],
    [
      'max_tokens below 1',
      { ...OK, max_tokens: 0 },
      400,
      'BadRequestError',
      'max_tokens',
      'max_tokens must be at least 1, got 0.',
    ],
    [
      'max_tokens of another type',
      { ...OK, max_tokens: 'many' },
      400,
      'Bad Request',
      'max_tokens',
      'valid integer',
    ],
    [
      'a fractional max_tokens',
      { ...OK, max_tokens: 1.5 },
      400,
      'Bad Request',
      'max_tokens',
      'valid integer',
    ],
    [
      'min_tokens above max_tokens',
      { ...OK, max_tokens: 2, min_tokens: 3 },
      400,
      'BadRequestError',
      'min_tokens',
      'less than or equal to max_tokens=2, got 3.',
    ],
    [
      'min_tokens below 0',
      { ...OK, min_tokens: -1 },
      400,
      'BadRequestError',
      'min_tokens',
      'greater than or equal to 0',
    ],
    [
      'a prompt that is too long',
      { prompt: 'a'.repeat(190), max_tokens: 11 },
      400,
      'BadRequestError',
      'input_tokens',
      'maximum context length is 200 tokens. However, you requested 11 output tokens and your prompt contains 190 input tokens',
    ],
    [
      'a text that is too long for any tokenization',
      { prompt: 'a'.repeat(201) },
      400,
      'BadRequestError',
      'input_tokens',
      'maximum context length is 200 tokens. However, your prompt contains at least 201 input tokens',
    ],
    [
      'more ids than fit',
      { prompt: Array.from({ length: 201 }, (_, i) => (i === 0 ? 1 : 'x')) },
      400,
      'BadRequestError',
      'input_tokens',
      'your prompt contains 201 input tokens',
    ],
    [
      'a stop token beyond the vocabulary',
      { ...OK, stop_token_ids: [5, 1_001] },
      400,
      'BadRequestError',
      'stop_token_ids',
      'token_id(s) [1001] in stop_token_ids contain out-of-vocab token ids. Vocabulary size: 1001',
    ],
    ['n above 1', { ...OK, n: 2 }, 400, 'BadRequestError', 'n', 'one choice per request'],
    ['n below 1', { ...OK, n: 0 }, 400, 'BadRequestError', 'n', 'n must be at least 1, got 0.'],
    ['stream of another type', { ...OK, stream: 'yes' }, 400, 'Bad Request', 'stream', 'valid boolean'],
    [
      'stream_options without a stream',
      { ...OK, stream_options: { include_usage: true } },
      400,
      'BadRequestError',
      'stream_options',
      'only be defined when `stream=True`',
    ],
    [
      'stream_options of another type',
      { ...OK, stream: true, stream_options: 5 },
      400,
      'Bad Request',
      'stream_options',
      'valid dictionary',
    ],
    [
      'a temperature below 0',
      { ...OK, temperature: -1 },
      400,
      'BadRequestError',
      'temperature',
      'temperature must be non-negative, got -1.',
    ],
    [
      'a temperature of another type',
      { ...OK, temperature: 'hot' },
      400,
      'Bad Request',
      'temperature',
      'valid number',
    ],
    ['top_p of 0', { ...OK, top_p: 0 }, 400, 'BadRequestError', 'top_p', 'top_p must be in (0, 1], got 0.'],
    [
      'top_p above 1',
      { ...OK, top_p: 1.1 },
      400,
      'BadRequestError',
      'top_p',
      'top_p must be in (0, 1], got 1.1.',
    ],
    [
      'an empty stop',
      { ...OK, stop: [''] },
      400,
      'BadRequestError',
      'stop',
      'stop cannot contain an empty string.',
    ],
    ['a stop of another type', { ...OK, stop: [5] }, 400, 'Bad Request', 'stop', 'valid string'],
    ['a seed of another type', { ...OK, seed: 'x' }, 400, 'Bad Request', 'seed', 'valid integer'],
    [
      'log-probabilities',
      { ...OK, logprobs: 1 },
      400,
      'BadRequestError',
      'logprobs',
      'does not support logprobs',
    ],
    [
      'beam search',
      { ...OK, use_beam_search: true },
      400,
      'BadRequestError',
      'use_beam_search',
      'does not support',
    ],
    [
      'a row beyond the trace',
      { ...OK, eldr_row: 10 },
      400,
      'BadRequestError',
      'eldr_row',
      'eldr_row must be less than 10',
    ],
    [
      'a row below 0',
      { ...OK, eldr_row: -1 },
      400,
      'BadRequestError',
      'eldr_row',
      'greater than or equal to 0',
    ],
    [
      'a row that is not an integer',
      { ...OK, eldr_row: 'first' },
      400,
      'Bad Request',
      'eldr_row',
      'valid integer',
    ],
    [
      'kv_transfer_params of another type',
      { ...OK, kv_transfer_params: 'x' },
      400,
      'Bad Request',
      'kv_transfer_params',
      'valid dictionary',
    ],
    [
      'an unknown recording',
      { ...OK, kv_transfer_params: { eldr: { record: 'prefill' } } },
      400,
      'BadRequestError',
      'kv_transfer_params',
      'record',
    ],
    [
      'a body that is too large',
      { prompt: 'a'.repeat(100_001) },
      413,
      'Request Entity Too Large',
      null,
      'larger than 100000 bytes',
    ],
  ])('for %s', async (_, body, ...[status, type, param, words]) => {
    const [foundStatus, foundType, foundParam, message] = await refused('/v1/completions', body)
    expect([foundStatus, foundType, foundParam]).toEqual([status, type, param])
    expect(message).toContain(words)
  })
})

describe('a field that vLLM supports and this worker does not', () => {
  const fields: [string, unknown, unknown][] = [
    // name, a value that changes the response, one that does not
    ['skip_special_tokens', false, true],
    ['logit_bias', { 5: 1 }, {}],
    ['bad_words', ['no'], []],
    ['allowed_token_ids', [1], null],
    ['logits_processors', ['x'], []],
    ['guided_json', {}, null],
    ['guided_regex', 'a+', null],
    ['prompt_embeds', 'abcd', null],
    ['truncate_prompt_tokens', 5, null],
    ['watermarking', true, false],
    ['echo', true, false],
  ]
  const chat: [string, unknown, unknown][] = [
    ['add_generation_prompt', false, true],
    ['continue_final_message', true, false],
    ['chat_template', '{{ messages }}', null],
    ['chat_template_kwargs', { enable_thinking: false }, {}],
    ['documents', [{ title: 'a', text: 'b' }], []],
  ]
  const routes = [
    ...fields.map(field => ['/v1/completions', OK, ...field] as const),
    ...[...fields, ...chat].map(field => ['/v1/chat/completions', CHAT, ...field] as const),
    ...chat.map(field => ['/tokenize', CHAT, ...field] as const),
  ]
  it.each(routes)(
    '%s %j: %s is refused by name, and accepted with a neutral value',
    async (path, body, name, telling, neutral) => {
      const [status, , param, message] = await refused(path, { ...body, [name]: telling })
      expect([status, param]).toEqual([400, name])
      expect(message).toContain(`does not support ${name}`)
      const answer = served.post(path, { ...body, [name]: neutral })
      if (path !== '/tokenize') {
        await served.engine.until(() => served.engine.requests.length > 0)
        for (const request of served.engine.requests.splice(0)) request.finish()
      }
      expect((await answer).status).toBe(200)
    },
  )

  it('is also refused for its type', async () => {
    for (const [name, value] of Object.entries({
      logit_bias: 'x',
      bad_words: 'x',
      chat_template_kwargs: [],
      skip_special_tokens: 'no',
    })) {
      const [status, type, param] = await refused('/v1/chat/completions', { ...CHAT, [name]: value })
      expect([status, type, param]).toEqual([400, 'Bad Request', name])
    }
  })
})

describe('a prompt that is far too long', () => {
  it('is refused before it is tokenized, on every route', async () => {
    const { tokenizer } = served.engine
    const spies = [vi.spyOn(tokenizer, 'encode'), vi.spyOn(tokenizer, 'chat')]
    tokenizer.leastTokens = () => 5_000
    try {
      const bodies: [string, object][] = [
        ['/v1/completions', OK],
        ['/v1/chat/completions', CHAT],
        ['/tokenize', OK],
        ['/tokenize', CHAT],
      ]
      for (const [path, body] of bodies) {
        const [status, , param, message] = await refused(path, body)
        expect([status, param]).toEqual([400, 'input_tokens'])
        expect(message).toContain('at least 5000 input tokens')
      }
      for (const spy of spies) expect(spy).not.toHaveBeenCalled()
    } finally {
      tokenizer.leastTokens = LEAST
      vi.restoreAllMocks()
    }
    expect((await refused('/detokenize', { tokens: Array.from({ length: 201 }, () => 'x') }))[3]).toContain(
      '201 input tokens',
    )
    const ids = { ...CHAT, kv_transfer_params: { prompt_token_ids: Array.from({ length: 201 }, () => 1) } }
    expect((await refused('/v1/chat/completions', ids))[3]).toContain('201 input tokens')
  })
})

describe('a chat is refused', () => {
  it.each<[string, unknown, string, string]>([
    ['no messages', {}, 'messages', 'Field required'],
    ['an empty list of messages', { messages: [] }, 'messages', 'at least one message'],
    ['messages of another type', { messages: 'hi' }, 'messages', 'valid list'],
    ['a message of another type', { messages: ['hi'] }, 'messages', 'valid dictionary'],
    ['a message without a role', { messages: [{ content: 'a' }] }, 'messages', 'Field required'],
    ['content of another type', { messages: [{ role: 'user', content: 5 }] }, 'messages', 'valid string'],
    [
      'a picture',
      { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }] },
      'messages',
      'image_url',
    ],
    [
      'tools',
      { ...CHAT, tools: [{ type: 'function', function: { name: 'f' } }] },
      'tools',
      'does not support tools',
    ],
    [
      'a response format',
      { ...CHAT, response_format: { type: 'json_object' } },
      'response_format',
      'does not support',
    ],
    [
      'max_completion_tokens below 1',
      { ...CHAT, max_completion_tokens: -5 },
      'max_completion_tokens',
      'at least 1, got -5.',
    ],
  ])('for %s', async (_, body, param, words) => {
    const [status, , foundParam, message] = await refused('/v1/chat/completions', body)
    expect([status, foundParam]).toEqual([400, param])
    expect(message).toContain(words)
  })
})

describe('a random body', () => {
  it('is refused or accepted, and never causes an internal error', async () => {
    const names = [
      'prompt',
      'messages',
      'max_tokens',
      'min_tokens',
      'stream',
      'stop',
      'seed',
      'temperature',
      'n',
      'model',
      'eldr_row',
      'kv_transfer_params',
      'stream_options',
      'stop_token_ids',
      'logprobs',
    ]
    const body = fc.oneof(
      fc.jsonValue(),
      fc.dictionary(fc.constantFrom(...names), fc.oneof(fc.jsonValue(), fc.nat(), fc.string())),
    )
    const take = () => {
      for (const request of served.engine.requests.splice(0)) request.finish()
    }
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom('/v1/completions', '/v1/chat/completions', '/tokenize', '/detokenize'),
        body,
        async (path, body) => {
          const answer = served.post(path, body as object)
          void served.engine.until(() => served.engine.requests.length > 0).then(take)
          expect((await answer).status).not.toBe(500)
          await (await answer).text()
        },
      ),
      { numRuns: 150 },
    )
  })

  it('does no harm if it ends early', async () => {
    const sent = httpRequest(`${served.url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-length': 100 },
    })
    sent.on('error', () => undefined)
    await new Promise<void>(resolve => sent.write('{"prompt":', () => resolve()))
    sent.destroy()
    expect((await served.post('/tokenize', { prompt: 'a' })).status).toBe(200)
    expect(served.engine.requests).toEqual([])
  })
})

describe('a worker of one role', () => {
  it('refuses the legs of the other role', async () => {
    const [prefill, decode] = [
      await serveScripted({ role: 'prefill' }),
      await serveScripted({ role: 'decode' }),
    ]
    const fetchFrom = {
      do_remote_prefill: true,
      remote_engine_id: 'e',
      remote_request_id: 'r',
      remote_block_ids: [[1]],
      remote_host: '127.0.0.1',
      remote_port: 9,
      remote_num_tokens: 3,
    }
    const first = await decode.post('/v1/completions', {
      ...OK,
      kv_transfer_params: { do_remote_decode: true },
    })
    const second = await prefill.post('/v1/completions', { ...OK, kv_transfer_params: fetchFrom })
    const third = await decode.post('/v1/completions', {
      ...OK,
      kv_transfer_params: { eldr: { record: 'decode' } },
    })
    for (const answer of [first, second, third])
      expect([answer.status, await answer.json()]).toMatchObject([
        501,
        { error: { type: 'NotImplementedError', code: 501 } },
      ])
    expect([prefill.worker.kvPort === undefined, decode.worker.kvPort === undefined]).toEqual([false, true])
    await Promise.all([prefill.worker.stop(), decode.worker.stop()])
  })
})
