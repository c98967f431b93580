import { request } from 'undici'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { chat, events, post, toPrefill } from './client.ts'
import { type FakeWorker, startFakeWorker } from './index.ts'

const shape = { layers: 48, experts: 128, topK: 8 }
let prefill: FakeWorker
let decode: FakeWorker
beforeEach(async () => {
  prefill = await startFakeWorker({ role: 'prefill', counts: shape })
  decode = await startFakeWorker({ role: 'decode', prefills: [prefill] })
})
afterEach(() => Promise.all([prefill.close(), decode.close()]))

const prefillBody = { ...chat, max_tokens: 1, kv_transfer_params: toPrefill }

describe('a prefill worker', () => {
  it('hands off like vLLM’s NixlConnector', async () => {
    const { status, json } = await post(prefill, prefillBody)
    expect(status).toBe(200)
    expect(json).toMatchObject({
      object: 'chat.completion',
      model: 'fake',
      usage: { prompt_tokens: 7, completion_tokens: 1 },
    })
    expect(json.kv_transfer_params).toMatchObject({
      do_remote_prefill: true,
      do_remote_decode: false,
      remote_block_ids: [[1000]],
      remote_engine_id: prefill.engineId,
      remote_host: '127.0.0.1',
      remote_port: 5600,
      tp_size: 1,
      remote_num_tokens: 7,
      transfer_mode: 'pull',
    })
    expect([...prefill.handoffs]).toEqual([[json.kv_transfer_params.remote_request_id, 0]])
  })

  it('adds counts that sum to top_k × tokens in every layer, and cycles through variants', async () => {
    const seen = new Set<string>()
    for (let n = 0; n < 9; n++) {
      const { eldr } = (await post(prefill, prefillBody)).json.kv_transfer_params
      expect(eldr).toMatchObject({
        v: 1,
        layers: 48,
        experts: 128,
        top_k: 8,
        tokens: 7,
        covered: 7,
        shift: 0,
      })
      const bytes = Buffer.from(eldr.counts, 'base64')
      expect(bytes).toHaveLength(48 * 128 * 2)
      for (let l = 0; l < 48; l++) {
        const layer = Array.from({ length: 128 }, (_, e) => bytes.readUInt16LE(2 * (l * 128 + e)))
        expect(layer.reduce((sum, count) => sum + count)).toBe(8 * 7)
        expect(Math.max(...layer)).toBeLessThanOrEqual(7)
      }
      seen.add(eldr.counts)
    }
    expect(seen.size).toBe(8)
  })

  it('adds custom counts', async () => {
    const odd = await startFakeWorker({ counts: ({ json }) => (json.user === 'odd' ? { v: 2 } : undefined) })
    expect((await post(odd, { ...prefillBody, user: 'odd' })).json.kv_transfer_params.eldr).toEqual({ v: 2 })
    expect((await post(odd, prefillBody)).json.kv_transfer_params).not.toHaveProperty('eldr')
    await odd.close()
  })

  it('returns the prompt’s token ids on request', async () => {
    const { json } = await post(prefill, { ...prefillBody, return_token_ids: true })
    expect(json.prompt_token_ids).toHaveLength(7)
    expect((await post(prefill, prefillBody)).json.prompt_token_ids).toBe(null)
  })

  it('returns no hand-off in a stream, like vLLM', async () => {
    expect((await events(prefill, prefillBody)).join()).not.toContain('kv_transfer_params')
    expect(prefill.counters.handoffsGiven).toBe(0)
  })
})

describe('a decode worker', () => {
  it('streams one event of about 220 bytes per requested token', async () => {
    const got = await events(decode, { ...chat, max_tokens: 5 })
    expect(got).toHaveLength(7)
    const parsed = got.slice(0, -1).map(event => JSON.parse(event.slice('data: '.length)))
    expect(parsed.map(({ choices }) => choices[0].delta.content)).toEqual([
      '',
      ' 0000',
      ' 0001',
      ' 0002',
      ' 0003',
      ' 0004',
    ])
    expect(parsed[0].choices[0].delta.role).toBe('assistant')
    expect(parsed.map(({ choices }) => choices[0].finish_reason)).toEqual([
      null,
      null,
      null,
      null,
      null,
      'length',
    ])
    expect(got.at(-1)).toBe('data: [DONE]')
    for (const event of got.slice(1, -2)) expect(Math.abs(event.length - 220)).toBeLessThan(30)
  })

  it('streams completions, with usage last on request', async () => {
    const body = { model: 'fake', prompt: [1, 2, 3], max_tokens: 2, stream_options: { include_usage: true } }
    const got = await events(decode, body, '/v1/completions')
    const parsed = got.slice(0, -1).map(event => JSON.parse(event.slice('data: '.length)))
    expect(parsed.map(({ choices }) => choices[0]?.text)).toEqual([' 0000', ' 0001', undefined])
    expect(parsed.at(-1).usage).toMatchObject({ prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 })
  })

  it('sends a whole response without stream; default: 16 tokens', async () => {
    const { json } = await post(decode, chat)
    expect(json.choices[0].message.content.trim().split(' ')).toHaveLength(16)
    expect(json).toMatchObject({ usage: { completion_tokens: 16 }, kv_transfer_params: null })
    const limits = { max_tokens: 9, max_completion_tokens: 4 }
    expect((await post(decode, { ...chat, ...limits })).json.usage.completion_tokens).toBe(4)
  })

  it('keeps the gap between tokens', async () => {
    const slow = await startFakeWorker({ firstTokenMs: 20, gapMs: 10 })
    const start = performance.now()
    await events(slow, { ...chat, max_tokens: 5 })
    expect(performance.now() - start).toBeGreaterThan(20 + 4 * 10 - 2)
    await slow.close()
  })

  it('reads a hand-off, counts requests without one or with counts left, and refuses an unknown one', async () => {
    const { kv_transfer_params: kv } = (await post(prefill, prefillBody)).json
    const { eldr, ...stripped } = kv
    await post(decode, { ...chat, kv_transfer_params: stripped })
    expect(decode.counters).toMatchObject({
      decode: 1,
      noKv: 0,
      eldrAtDecode: 0,
      handoffsRead: 1,
      handoffsUnknown: 0,
    })
    expect(prefill.handoffs.get(kv.remote_request_id)).toBe(1)
    await post(decode, { ...chat, kv_transfer_params: { ...stripped, eldr } })
    expect(decode.counters).toMatchObject({ eldrAtDecode: 1, handoffsRead: 2 })
    await post(decode, chat)
    expect(decode.counters.noKv).toBe(1)
    await prefill.restart()
    const { status, json } = await post(decode, { ...chat, kv_transfer_params: stripped })
    expect([status, json.error.type]).toEqual([500, 'InternalServerError'])
    expect(decode.counters.handoffsUnknown).toBe(1)
  })

  it('counts legs of the other role', async () => {
    await post(decode, prefillBody)
    await post(prefill, chat)
    expect([decode.counters.misdirected, prefill.counters.misdirected]).toEqual([1, 1])
  })
})

describe('both', () => {
  it.each([
    [400, { ...chat, stream_options: { include_usage: true } }],
    [400, { ...chat, max_tokens: 1, min_tokens: 4 }],
    [400, { ...chat, max_tokens: 0 }],
    [400, { model: 'fake' }],
    [400, 'text'],
    [404, { ...chat, model: 'other' }],
  ])('refuse with %i like vLLM: %j', async (expected, body) => {
    const { status, json } = await post(decode, body)
    expect([status, json.error.code]).toEqual([expected, expected])
    expect(decode.counters.rejected).toBe(1)
  })

  it('serve the routes that a router polls', async () => {
    const get = async (path: string) => {
      const { statusCode, body } = await request(`${decode.url}${path}`)
      return [statusCode, await body.text()] as const
    }
    expect(await get('/health')).toEqual([200, ''])
    expect(JSON.parse((await get('/v1/models'))[1]).data[0].id).toBe('fake')
    expect(JSON.parse((await get('/version'))[1])).toHaveProperty('version')
    expect((await post(decode, { model: 'fake', prompt: 'four char' }, '/tokenize')).json).toMatchObject({
      count: 3,
    })
    await post(decode, { ...chat, max_tokens: 3 })
    const [, metrics] = await get('/metrics')
    expect(metrics).toContain('vllm:num_requests_running{engine="0",model_name="fake"} 0')
    expect(metrics).toContain('vllm:generation_tokens_total{engine="0",model_name="fake"} 3')
    expect(JSON.parse((await get('/fake/counters'))[1])).toMatchObject({ decode: 1, completed: 6 })
    expect((await get('/nowhere'))[0]).toBe(404)
    expect((await get('/tokenize'))[0]).toBe(405)
  })
})
