import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Cluster, eventsOf, startCluster } from './cluster.ts'

let cluster: Cluster
beforeAll(async () => void (cluster = await startCluster()))
afterAll(() => cluster.stop())

describe('a request through both legs', () => {
  it('is prefilled by a prefill worker and decoded by a decode worker with its hand-off', async () => {
    const response = await cluster.post(
      '/v1/completions',
      { model: 'fake', prompt: 'Once upon a time', max_tokens: 4 },
      { headers: { 'x-request-id': 'abc' } },
    )
    expect(response.status).toBe(200)
    expect(response.headers.get('x-request-id')).toBe('abc')
    const body = (await response.json()) as {
      choices: { text: string }[]
      usage: { completion_tokens: number }
    }
    expect(body.choices).toHaveLength(1)
    expect(body.usage.completion_tokens).toBe(4)
    const prefill = cluster.prefills
      .flatMap(({ requests }) => requests)
      .find(({ isGeneration }) => isGeneration)!
    expect(prefill.json).toMatchObject({
      max_tokens: 1,
      stream: false,
      kv_transfer_params: { do_remote_decode: true },
    })
    const decode = cluster.decodes
      .flatMap(({ requests }) => requests)
      .find(({ isGeneration }) => isGeneration)!
    expect(decode.json).toMatchObject({ max_tokens: 4, kv_transfer_params: { do_remote_prefill: true } })
    expect(decode.kv).not.toHaveProperty('eldr')
    expect([prefill.headers['x-request-id'], decode.headers['x-request-id']]).toEqual(['abc', 'abc'])
    await cluster.idle()
  })

  it('streams', async () => {
    const response = await cluster.post('/v1/chat/completions', {
      model: 'fake',
      messages: [{ role: 'user', content: 'hello' }],
      max_tokens: 5,
      stream: true,
      stream_options: { include_usage: true },
    })
    expect(response.headers.get('content-type')).toContain('text/event-stream')
    const events = await eventsOf(response)
    expect(events.at(-1)).toBe('[DONE]')
    expect(JSON.parse(events.at(-2)!)).toMatchObject({ usage: { completion_tokens: 5 } })
    await cluster.idle()
    expect(cluster.decodes.every(({ counters }) => counters.noKv === 0 && counters.eldrAtDecode === 0)).toBe(
      true,
    )
  })

  it('with several prompts and choices is split and merged', async () => {
    const response = await cluster.post('/v1/completions', { prompt: ['a', 'b'], n: 2, max_tokens: 3 })
    const body = (await response.json()) as { id: string; choices: { index: number }[]; usage: object }
    expect(body.choices.map(({ index }) => index)).toEqual([0, 1, 2, 3])
    expect(body.usage).toMatchObject({ completion_tokens: 12 })
    const stream = await eventsOf(
      await cluster.post('/v1/completions', {
        prompt: ['a', 'b'],
        max_tokens: 3,
        stream: true,
        stream_options: { include_usage: true },
      }),
    )
    expect(stream.filter(event => event === '[DONE]')).toHaveLength(1)
    const parsed = stream
      .slice(0, -1)
      .map(event => JSON.parse(event) as { id: string; choices: { index: number }[]; usage?: object })
    expect(new Set(parsed.flatMap(({ choices }) => choices.map(({ index }) => index)))).toEqual(
      new Set([0, 1]),
    )
    expect(parsed.filter(({ usage }) => usage !== undefined)).toHaveLength(1)
    expect(parsed.at(-1)!.usage).toMatchObject({ completion_tokens: 6 })
    await cluster.idle()
  })

  it('for one token is served by a prefill worker alone', async () => {
    const before = cluster.decodes.reduce((sum, { counters }) => sum + counters.decode, 0)
    const response = await cluster.post('/v1/completions', { prompt: 'a', max_tokens: 1 })
    expect(response.status).toBe(200)
    expect(cluster.decodes.reduce((sum, { counters }) => sum + counters.decode, 0)).toBe(before)
    await cluster.idle()
  })

  it('that is invalid gets an error in OpenAI’s format', async () => {
    for (const [path, body, status, code] of [
      ['/v1/completions', '{', 400, 'ELDR_BAD_REQUEST'],
      ['/v1/completions', '{"prompt":"a","n":0}', 400, 'ELDR_BAD_REQUEST'],
      ['/v1/chat/completions', '{"prompt":"a"}', 400, 'ELDR_BAD_REQUEST'],
      ['/v1/completions', '{"prompt":"a","n":100000}', 400, 'ELDR_TOO_MANY_CHOICES'],
      ['/v1/embeddings', '{}', 404, 'ELDR_NOT_GENERATION'],
      ['/nothing', '{}', 404, 'ELDR_NOT_FOUND'],
    ] as const) {
      const response = await cluster.post(path, body)
      expect(response.status, path).toBe(status)
      expect(await response.json()).toMatchObject({ error: { code, type: 'invalid_request_error' } })
    }
  })

  it('is visible on the admin routes', async () => {
    const get = async (path: string) => (await fetch(`${cluster.url}${path}`)).text()
    expect(await get('/health')).toContain('ok')
    expect(JSON.parse(await get('/ready'))).toEqual({ status: 'ready', prefill: 2, decode: 2 })
    expect(await get('/metrics')).toContain('eldr_decisions_total{policy="union"')
    expect(await get('/v1/models')).toContain('fake')
  })
})
