/** vLLM’s HTTP API, byte for byte where clients read it: a worker’s server on a scripted engine. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { EOS } from './scripted-engine.ts'
import { eventsOf, type Served, serveScripted } from './served.ts'

let served: Served
beforeAll(async () => {
  served = await serveScripted()
})
afterAll(() => served.worker.stop())
afterEach(() => {
  served.checkIdle()
})
const { post } = { post: (...args: Parameters<Served['post']>) => served.post(...args) }
const next = () => served.engine.request(0)
const json = async (answer: Promise<Response>) => (await (await answer).json()) as Record<string, unknown>

describe('a completion', () => {
  it('returns a whole response with vLLM’s members', async () => {
    const answer = post(
      '/v1/completions',
      { model: 'm', prompt: 'abc', max_tokens: 2 },
      { headers: { 'x-request-id': 'mine' } },
    )
    ;(await next()).say('xy').finish()
    const { headers } = await answer
    expect(headers.get('x-request-id')).toBe('mine')
    const body = (await (await answer).json()) as { created: number }
    expect(body).toEqual({
      id: 'cmpl-mine',
      object: 'text_completion',
      created: expect.any(Number) as number,
      model: 'm',
      choices: [
        {
          index: 0,
          text: 'xy',
          logprobs: null,
          finish_reason: 'length',
          stop_reason: null,
          token_ids: null,
          prompt_logprobs: null,
          prompt_token_ids: null,
        },
      ],
      service_tier: null,
      system_fingerprint: null,
      usage: { prompt_tokens: 3, total_tokens: 5, completion_tokens: 2, prompt_tokens_details: null },
      kv_transfer_params: null,
    })
    expect(Math.abs(body.created - Date.now() / 1000)).toBeLessThan(60)
  })

  it('passes vLLM’s fields to the engine', async () => {
    const answer = post('/v1/completions', {
      prompt: [[5, 6, 7]],
      max_tokens: 9,
      min_tokens: 2,
      ignore_eos: true,
      temperature: 0.5,
      top_p: 0.9,
      seed: 42,
      eldr_row: 3,
      n: 1,
      stream: null,
      stop: null,
      user: 'user-1',
      unknown_field: { a: 1 },
    })
    const scripted = await next()
    expect(scripted.request).toMatchObject({
      maxTokens: 9,
      minTokens: 2,
      ignoreEos: true,
      temperature: 0.5,
      topP: 0.9,
      seed: 42,
      row: 3,
      keepForDecode: false,
      recordDecode: false,
      remote: undefined,
    })
    expect([...scripted.request.promptIds]).toEqual([5, 6, 7])
    scripted.finish()
    await answer
  })

  it('has vLLM’s defaults: 16 tokens, temperature 1', async () => {
    const answer = post('/v1/completions', { prompt: ['one'] })
    const scripted = await next()
    expect(scripted.request).toMatchObject({
      maxTokens: 16,
      minTokens: 0,
      ignoreEos: false,
      temperature: 1,
      topP: 1,
      seed: undefined,
      row: undefined,
    })
    scripted.finish()
    expect(await json(answer)).toMatchObject({ id: expect.stringMatching(/^cmpl-[\da-f]{32}$/) as string })
  })

  it('returns token ids on request', async () => {
    const answer = post('/v1/completions', { prompt: 'ab', max_tokens: 2, return_token_ids: true })
    ;(await next()).say('xy').finish()
    expect((await json(answer))['choices']).toMatchObject([
      { prompt_token_ids: [97, 98], token_ids: [120, 121] },
    ])
  })

  it('is streamed with one event per token, the last with its finish reason, and [DONE]', async () => {
    const answer = post(
      '/v1/completions',
      { prompt: 'abc', max_tokens: 2, stream: true },
      { headers: { 'x-request-id': 'mine' } },
    )
    const scripted = await next()
    const { headers, status } = await answer // before any token
    expect([status, headers.get('content-type')]).toEqual([200, 'text/event-stream; charset=utf-8'])
    scripted.say('xy').finish()
    const events = await eventsOf(await answer)
    const created = (JSON.parse(events[0]!) as { created: number }).created
    const head = `{"id":"cmpl-mine","object":"text_completion","created":${created},"model":"m","choices":[{"index":0`
    expect(events).toEqual([
      `${head},"text":"x","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}`,
      `${head},"text":"y","logprobs":null,"finish_reason":"length","stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}`,
      '[DONE]',
    ])
  })

  it('is streamed with usage at the end or in every event, and with ids on request', async () => {
    const answer = post('/v1/completions', {
      prompt: 'ab',
      max_tokens: 2,
      stream: true,
      return_token_ids: true,
      stream_options: { include_usage: true, continuous_usage_stats: true },
    })
    ;(await next()).say('xy').finish()
    const events = (await eventsOf(await answer))
      .slice(0, -1)
      .map(event => JSON.parse(event) as { usage: unknown; choices: unknown[] })
    expect(events.map(({ usage }) => usage)).toEqual([
      { prompt_tokens: 2, total_tokens: 3, completion_tokens: 1 },
      { prompt_tokens: 2, total_tokens: 4, completion_tokens: 2 },
      { prompt_tokens: 2, total_tokens: 4, completion_tokens: 2 },
    ])
    expect(events.map(({ choices }) => choices)).toMatchObject([
      [{ prompt_token_ids: [97, 98], token_ids: [120] }],
      [{ prompt_token_ids: null, token_ids: [121] }],
      [],
    ])
  })

  it('ends with the end-of-text token, which has no text', async () => {
    const answer = post('/v1/completions', { prompt: 'ab', max_tokens: 9, stream: true })
    ;(await next()).say('x').token(EOS, '').finish('stop')
    const events = (await eventsOf(await answer))
      .slice(0, -1)
      .map(event => JSON.parse(event) as { choices: { text: string; finish_reason: string | null }[] })
    expect(events.map(({ choices: [choice] }) => [choice!.text, choice!.finish_reason])).toEqual([
      ['x', null],
      ['', 'stop'],
    ])
  })
})

describe('stop', () => {
  it.each([
    ['a string', { stop: 'lo' }, 'hel', 'lo'],
    ['one of a list', { stop: ['zz', 'o w'] }, 'hell', 'o w'],
    [
      'a string that is included in the output',
      { stop: 'lo', include_stop_str_in_output: true },
      'hello',
      'lo',
    ],
    ['a token id', { stop_token_ids: [119] }, 'hello w', 119],
    ['a string, not before min_tokens', { stop: ['l'], min_tokens: 3 }, 'hel', 'l'],
  ])('ends at %s, across tokens', async (_, fields, text, reason) => {
    const answer = post('/v1/completions', { prompt: 'ab', max_tokens: 50, ...fields })
    const scripted = await next()
    scripted.say('hello world')
    expect([scripted.aborted, scripted.end?.kind]).toEqual(['stop', 'finished'])
    expect((await json(answer))['choices']).toMatchObject([
      { text, finish_reason: 'stop', stop_reason: reason },
    ])
  })

  it('works in a stream: one event per token, and no text beyond the stop', async () => {
    const answer = post('/v1/completions', { prompt: 'ab', max_tokens: 50, stop: 'lo', stream: true })
    ;(await next()).say('hello world')
    const events = (await eventsOf(await answer))
      .slice(0, -1)
      .map(event => JSON.parse(event) as { choices: { text: string; finish_reason: string | null }[] })
    expect(events.map(({ choices: [choice] }) => [choice!.text, choice!.finish_reason])).toEqual([
      ['h', null],
      ['e', null],
      ['', null],
      ['l', null],
      ['', 'stop'],
    ])
  })

  it('emits held-back text that was not a stop string when the text ends', async () => {
    const answer = post('/v1/completions', { prompt: 'ab', max_tokens: 2, stop: 'xyz' })
    ;(await next()).say('xy').finish('length', { tail: '\ufffd' })
    expect((await json(answer))['choices']).toMatchObject([
      { text: 'xy\ufffd', finish_reason: 'length', stop_reason: null },
    ])
  })
})

describe('a chat', () => {
  const CHAT = {
    messages: [
      { role: 'system', content: 'be' },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'a' },
          { type: 'text', text: 'b' },
        ],
      },
    ],
  }

  it('returns a whole response', async () => {
    const answer = post(
      '/v1/chat/completions',
      { ...CHAT, max_tokens: 99, max_completion_tokens: 2 },
      { headers: { 'x-request-id': 'mine' } },
    )
    const scripted = await next()
    expect(scripted.request.maxTokens).toBe(2)
    expect(served.engine.tokenizer.decode(scripted.request.promptIds)).toBe('<system>be<user>ab')
    scripted.say('xy').finish()
    expect(await json(answer)).toEqual({
      id: 'chatcmpl-mine',
      object: 'chat.completion',
      created: expect.any(Number) as number,
      model: 'm',
      choices: [
        {
          index: 0,
          message: {
            role: 'assistant',
            content: 'xy',
            refusal: null,
            annotations: null,
            audio: null,
            function_call: null,
            tool_calls: [],
            reasoning: null,
          },
          logprobs: null,
          finish_reason: 'length',
          stop_reason: null,
          token_ids: null,
        },
      ],
      service_tier: null,
      system_fingerprint: null,
      usage: { prompt_tokens: 18, total_tokens: 20, completion_tokens: 2, prompt_tokens_details: null },
      prompt_logprobs: null,
      prompt_token_ids: null,
      kv_transfer_params: null,
    })
  })

  it('is streamed with its role first', async () => {
    const answer = post(
      '/v1/chat/completions',
      { ...CHAT, max_tokens: 2, stream: true, stream_options: { include_usage: true } },
      { headers: { 'x-request-id': 'mine' } },
    )
    ;(await next()).say('xy').finish()
    const events = await eventsOf(await answer)
    const created = (JSON.parse(events[0]!) as { created: number }).created
    const head = `{"id":"chatcmpl-mine","object":"chat.completion.chunk","created":${created},"model":"m","choices":[`
    expect(events).toEqual([
      `${head}{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null}`,
      `${head}{"index":0,"delta":{"content":"x"},"logprobs":null,"finish_reason":null,"token_ids":null}]}`,
      `${head}{"index":0,"delta":{"content":"y"},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}]}`,
      `${head}],"usage":{"prompt_tokens":18,"total_tokens":20,"completion_tokens":2}}`,
      '[DONE]',
    ])
  })

  it('continues to the end of the context by default', async () => {
    const answer = post('/v1/chat/completions', CHAT)
    const scripted = await next()
    expect(scripted.request.maxTokens).toBe(200 - 18)
    scripted.finish()
    await answer
  })
})

describe('a request that fails', () => {
  it('in the engine returns its status', async () => {
    const answer = post('/v1/completions', { prompt: 'ab' })
    ;(await next()).fail(500, 'it broke')
    expect([(await answer).status, await json(answer)]).toEqual([
      500,
      { error: { message: 'it broke', type: 'InternalServerError', param: null, code: 500 } },
    ])
  })

  it('during a stream ends it with an error event', async () => {
    const answer = post('/v1/completions', { prompt: 'ab', stream: true })
    ;(await next()).say('x').fail(500, 'it broke')
    const events = await eventsOf(await answer)
    expect(events.slice(1)).toEqual([
      '{"error":{"message":"it broke","type":"InternalServerError","param":null,"code":500}}',
      '[DONE]',
    ])
  })
})
