/** Hand-off legs, calibration and the other routes: a worker’s server on a scripted engine. */
import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { readHandoffCounts } from '../../src/wire/counts.ts'
import { readDecodeExperts } from '../../src/wire/decode-experts.ts'
import { type Served, serveScripted } from './served.ts'

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

const COUNTS = {
  layers: 2,
  experts: 4,
  topK: 2,
  tokens: 3,
  covered: 3,
  counts: Uint32Array.of(3, 3, 0, 0, 0, 2, 2, 2),
}

describe('the prefill leg', () => {
  const LEG = {
    prompt: 'abc',
    max_tokens: 1,
    stop: 'x',
    kv_transfer_params: {
      do_remote_decode: true,
      do_remote_prefill: false,
      remote_engine_id: null,
      remote_block_ids: null,
      remote_host: null,
      remote_port: null,
    },
  }

  it('returns the address of the blocks, and the experts', async () => {
    const answer = post('/v1/completions', LEG, { headers: { 'x-request-id': 'mine' } })
    const scripted = await next()
    expect(scripted.request).toMatchObject({ keepForDecode: true, ignoreEos: true })
    let released = 0
    const lease = {
      id: 'k',
      blockIds: [7, 9],
      tokens: 3,
      export: () => ({ bytes: Buffer.from('kv'), tokens: 3 }),
      release: () => void released++,
    }
    scripted.say('x').finish('length', {
      counts: { ...COUNTS, recent: new Float64Array(8), halfLife: 64 },
      lease,
      cachedTokens: 2,
    })
    const { kv_transfer_params: params } = (await json(answer)) as {
      kv_transfer_params: Record<string, unknown>
    }
    const { worker } = served
    expect(params).toMatchObject({
      do_remote_prefill: true,
      do_remote_decode: false,
      remote_block_ids: [[7, 9]],
      remote_engine_id: worker.context.engineId,
      remote_request_id: expect.stringMatching(/^cmpl-mine-[\da-f]{8}$/) as string,
      remote_host: '127.0.0.1',
      remote_port: worker.kvPort,
      tp_size: 1,
      dcp_size: 1,
      pp_size: 1,
      transfer_mode: 'pull',
      remote_num_tokens: 3,
      remote_prefill_cached_tokens: 2,
      remote_blocks_expiry_time: null,
    })
    const read = readHandoffCounts(params['eldr'], { ...COUNTS, minCovered: 1, recentHalfLife: 64 })
    expect(read).toMatchObject({
      counts: Uint16Array.from(COUNTS.counts),
      recent: new Float32Array(8),
      tokens: 3,
      covered: 3,
    })
    expect([worker.context.handoffs!.leases.size, released]).toEqual([1, 0])
    worker.context.handoffs!.leases.end(params['remote_request_id'] as string, 'released')
    expect(released).toBe(1)
  })

  it('of a client that has left frees its blocks at once', async () => {
    const gone = new AbortController()
    const answer = post('/v1/completions', LEG, { signal: gone.signal }).catch(() => undefined)
    const scripted = await next()
    gone.abort()
    await answer
    await served.engine.until(() => scripted.end !== undefined)
    expect(scripted.aborted).toBe('gone')
  })

  it('keeps no blocks if it is streamed, because a stream cannot carry their address', async () => {
    const answer = post('/v1/completions', { ...LEG, stream: true })
    const scripted = await next()
    expect(scripted.request.keepForDecode).toBe(false)
    scripted.finish()
    await answer
  })
})

describe('the decode leg', () => {
  const handoff = (more: object = {}) => ({
    do_remote_prefill: true,
    do_remote_decode: false,
    remote_engine_id: 'e',
    remote_request_id: 'r',
    remote_block_ids: [[1]],
    remote_host: '127.0.0.1',
    remote_port: 9,
    remote_num_tokens: 3,
    tp_size: 1,
    ...more,
  })

  it('asks the engine for remote blocks, and a chat uses the token ids of the prefill leg', async () => {
    const answer = post('/v1/chat/completions', {
      messages: [{ role: 'user', content: 'abc' }],
      max_tokens: 1,
      kv_transfer_params: handoff({ prompt_token_ids: [5, 6, 7] }),
    })
    const scripted = await next()
    expect(scripted.request).toMatchObject({ remote: { tokens: 3 }, keepForDecode: false })
    expect([...scripted.request.promptIds]).toEqual([5, 6, 7])
    scripted.say('x').finish()
    expect(await json(answer)).toMatchObject({ kv_transfer_params: null })
    await served.worker.context.live.whenIdle()
  })

  it.each([
    ['remote_engine_id', 'null', { remote_engine_id: null }],
    ['remote_port', 'out of range', { remote_port: 70_000 }],
    ['remote_num_tokens', 'of another prompt', { remote_num_tokens: 4 }],
    ['remote_host', 'empty', { remote_host: '' }],
    ['do_remote_decode', 'both ways at once', { do_remote_decode: true }],
  ])('is refused when %s is %s', async (field, _, more) => {
    const answer = await post('/v1/completions', { prompt: 'abc', kv_transfer_params: handoff(more) })
    expect(answer.status).toBe(400)
    expect(((await answer.json()) as { error: { message: string } }).error.message).toContain(field)
    await served.worker.context.live.whenIdle()
  })

  it('that is refused for another reason frees its blocks', async () => {
    const listener = createServer().listen(0, '127.0.0.1')
    await once(listener, 'listening')
    const { port } = listener.address() as { port: number }
    const told = once(listener, 'connection')
    const answer = await post('/v1/completions', {
      prompt: 'abc',
      max_tokens: 0,
      kv_transfer_params: handoff({ remote_port: port }),
    })
    expect(answer.status).toBe(400)
    const [socket] = (await told) as [Socket]
    const [frame] = (await once(socket, 'data')) as [Buffer]
    expect(frame.toString('latin1')).toContain('"request_id":"r"')
    socket.destroy()
    listener.close()
    await served.worker.context.live.whenIdle()
  })
})

describe('a calibration', () => {
  it('returns the experts of prompt and response', async () => {
    const answer = post('/v1/completions', {
      prompt: 'abc',
      max_tokens: 3,
      kv_transfer_params: { eldr: { record: 'decode' } },
    })
    const scripted = await next()
    expect(scripted.request).toMatchObject({ recordDecode: true, keepForDecode: false })
    const ids = Uint16Array.of(0, 1, 2, 3, 1, 0, 3, 2)
    scripted.say('xyz').finish('length', { counts: COUNTS, decode: { steps: 2, ids } })
    const { eldr } = ((await json(answer)) as { kv_transfer_params: { eldr: { decode: unknown } } })
      .kv_transfer_params
    expect(readHandoffCounts(eldr, { ...COUNTS, minCovered: 1 })).toMatchObject({ covered: 3 })
    expect(readDecodeExperts(eldr.decode, COUNTS)).toMatchObject({ steps: 2, ids })
  })

  it('cannot be streamed', async () => {
    const answer = await post('/v1/completions', {
      prompt: 'abc',
      stream: true,
      kv_transfer_params: { eldr: { record: 'decode' } },
    })
    expect(answer.status).toBe(400)
  })
})

describe('other routes', () => {
  it('list the model, tokenize, detokenize and report the state', async () => {
    const get = async (path: string) => (await fetch(`${served.url}${path}`)).json() as Promise<unknown>
    expect(await get('/v1/models')).toMatchObject({
      object: 'list',
      data: [{ id: 'm', object: 'model', max_model_len: 200 }],
    })
    expect(await json(post('/tokenize', { prompt: 'ab', return_token_strs: true }))).toEqual({
      count: 2,
      max_model_len: 200,
      tokens: [97, 98],
      token_strs: ['a', 'b'],
    })
    expect(await json(post('/tokenize', { messages: [{ role: 'u', content: 'b' }] }))).toMatchObject({
      count: 4,
      token_strs: null,
    })
    expect(await json(post('/detokenize', { tokens: [97, 98] }))).toEqual({ prompt: 'ab' })
    expect(await get('/version')).toEqual({ version: expect.stringMatching(/^\d+\.\d+\.\d+$/) as string })
    expect(await get('/load')).toEqual({ server_load: 0 })
    expect((await fetch(`${served.url}/health`)).status).toBe(200)
    expect((await post('/reset_prefix_cache', '')).status).toBe(200)
    served.engine.resettable = false
    expect((await post('/reset_prefix_cache', '')).status).toBe(409)
    expect(await get('/eldr/union')).toEqual({
      layers: 2,
      experts: 4,
      top_k: 2,
      batch: 5,
      active: [3, 2],
      union: 'AQEAAQAAAQE=',
    })
    expect(await get('/eldr/state')).toMatchObject({
      role: 'both',
      requests: 0,
      leases: 0,
      stats: { activePerLayer: [3, 2], blocksFree: 48 },
    })
  })

  it('expose metrics with vLLM’s names', async () => {
    const text = await (await fetch(`${served.url}/metrics`)).text()
    const labels = 'model_name="m",engine="0"'
    for (const line of [
      `vllm:num_requests_running{${labels}} 0`,
      `vllm:num_requests_waiting{${labels}} 2`,
      `vllm:num_requests_waiting_by_reason{reason="deferred",${labels}} 1`,
      `vllm:kv_cache_usage_perc{${labels}} 0.25`,
      `vllm:prefix_cache_queries_total{${labels}} 70`,
      `vllm:prefix_cache_hits_total{${labels}} 30`,
      `vllm:num_preemptions_total{${labels}} 4`,
      `vllm:generation_tokens_total{${labels}} 50`,
      `vllm:request_success_total{finished_reason="length",${labels}} 0`,
      `eldr_active_experts{layer="1",${labels}} 2`,
      `eldr_decode_batch{${labels}} 5`,
    ])
      expect(text).toContain(`${line}\n`)
    for (const name of [
      'vllm:time_to_first_token_seconds',
      'vllm:inter_token_latency_seconds',
      'vllm:request_time_per_output_token_seconds',
      'vllm:e2e_request_latency_seconds',
    ])
      expect(text).toMatch(new RegExp(`^${name}_count\\{${labels}\\} \\d+$`, 'm'))
    expect(text).toMatch(/^vllm:prompt_tokens_total\{.*\} [1-9]\d*$/m)
  })

  it('that do not exist are refused, and so are other methods', async () => {
    const error = (message: string, code: number) => ({
      error: { message, type: message, param: null, code },
    })
    const none = await fetch(`${served.url}/v1/embeddings`, { method: 'POST', body: '{}' })
    expect([none.status, await none.json()]).toEqual([404, error('Not Found', 404)])
    const other = await fetch(`${served.url}/v1/completions`)
    expect([other.status, other.headers.get('allow'), await other.json()]).toEqual([
      405,
      'POST',
      error('Method Not Allowed', 405),
    ])
  })
})
