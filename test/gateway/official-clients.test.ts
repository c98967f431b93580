/** OpenAI's client for Node against a gateway: responses, streams, errors and aborts. */
import OpenAI, {
  APIConnectionTimeoutError,
  APIError,
  APIUserAbortError,
  AuthenticationError,
  BadRequestError,
  InternalServerError,
  NotFoundError,
  RateLimitError,
} from 'openai'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type Cluster, startCluster } from './cluster.ts'

let cluster: Cluster
let client: OpenAI
beforeAll(async () => {
  cluster = await startCluster({
    config: {
      server: { apiKeys: ['right'] },
      retries: { max: 0 },
      breaker: { consecutiveFailures: 1_000, windowRequests: 100_000 },
    },
  })
  client = clientWith({})
})
afterAll(() => cluster.stop())
afterEach(async () => {
  for (const worker of [...cluster.prefills, ...cluster.decodes]) worker.clearFaults()
  await cluster.idle()
})

const clientWith = (more: object) =>
  new OpenAI({ baseURL: `${cluster.url}/v1`, apiKey: 'right', maxRetries: 0, ...more })
const CHAT = {
  model: 'fake',
  messages: [{ role: 'user' as const, content: 'hello' }],
  max_completion_tokens: 5,
}
const COMPLETION = { model: 'fake', prompt: 'hello', max_tokens: 5 }

describe('the openai client', () => {
  it('gets a chat completion, its usage and the request id', async () => {
    const { data, request_id: id } = await client.chat.completions.create(CHAT).withResponse()
    expect(data.choices[0]).toMatchObject({
      index: 0,
      finish_reason: 'length',
      message: { role: 'assistant' },
    })
    expect(data.usage).toMatchObject({ completion_tokens: 5 })
    expect(id).toMatch(/^[\da-f-]{36}$/)
    expect(data.id).toBe(`chatcmpl-${id}`)
  })

  it('gets a streamed chat completion with the usage at the end', async () => {
    const stream = await client.chat.completions.create({
      ...CHAT,
      stream: true,
      stream_options: { include_usage: true },
    })
    const chunks = []
    for await (const chunk of stream) chunks.push(chunk)
    const text = chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join('')
    const whole = await client.chat.completions.create(CHAT)
    expect(text).toBe(whole.choices[0]!.message.content)
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: 5 } })
  })

  it('gets several completions in one response or one stream', async () => {
    const whole = await client.completions.create({ ...COMPLETION, prompt: ['a', 'b'], n: 2 })
    expect(whole.choices.map(({ index }) => index)).toEqual([0, 1, 2, 3])
    expect(whole.usage).toMatchObject({ completion_tokens: 20 })
    const stream = await client.completions.create({ ...COMPLETION, n: 2, stream: true })
    const ids = new Set<string>()
    const indices = new Set<number>()
    for await (const { id, choices } of stream) {
      ids.add(id)
      for (const { index } of choices) indices.add(index)
    }
    expect([ids.size, indices]).toEqual([1, new Set([0, 1])])
  })

  it('assembles a stream with its own helper', async () => {
    const completion = await client.chat.completions.stream({ ...CHAT, n: 2 }).finalChatCompletion()
    expect(completion.choices.map(({ index, message }) => [index, message.content!.length > 0])).toEqual([
      [0, true],
      [1, true],
    ])
  })

  it('lists models', async () => {
    const models = await client.models.list()
    expect(models.data.map(({ id }) => id)).toContain('fake')
  })

  it.each([
    [
      'a wrong key',
      AuthenticationError,
      'ELDR_UNAUTHORIZED',
      () => clientWith({ apiKey: 'wrong' }).chat.completions.create(CHAT),
    ],
    [
      'an invalid request',
      BadRequestError,
      'ELDR_BAD_REQUEST',
      () => client.chat.completions.create({ ...CHAT, n: 0 }),
    ],
    [
      'too many choices',
      BadRequestError,
      'ELDR_TOO_MANY_CHOICES',
      () => client.completions.create({ ...COMPLETION, n: 100_000 }),
    ],
    [
      'an unsupported route',
      NotFoundError,
      'ELDR_NOT_GENERATION',
      () => client.embeddings.create({ model: 'fake', input: 'a' }),
    ],
  ])('reports %s as its matching error class, with the gateway’s code', async (_, kind, code, call) => {
    const error = await call().then(
      () => undefined,
      (reason: unknown) => reason,
    )
    expect(error).toBeInstanceOf(kind)
    expect(error).toMatchObject({
      code,
      type: 'invalid_request_error',
      requestID: expect.stringMatching(/./) as string,
    })
  })

  it('gets the worker’s own error message for a request that the worker refuses', async () => {
    const error = await client.chat.completions
      .create({ ...CHAT, model: 'no-such-model' })
      .catch((reason: unknown) => reason)
    expect(error).toBeInstanceOf(NotFoundError)
    expect((error as APIError).message).toContain('no-such-model')
  })

  it('reports failed workers as a server error and full workers as a rate limit', async () => {
    for (const worker of cluster.decodes) worker.fail({ kind: 'status', status: 500 })
    await expect(client.chat.completions.create(CHAT)).rejects.toBeInstanceOf(InternalServerError)
    for (const worker of cluster.decodes) worker.clearFaults()
    for (const worker of cluster.decodes) worker.fail({ kind: 'status', status: 429 })
    await expect(client.chat.completions.create(CHAT)).rejects.toBeInstanceOf(RateLimitError)
  })

  it('retries by itself if configured to', async () => {
    for (const worker of cluster.decodes) worker.failNext({ kind: 'status', status: 500 })
    const completion = await clientWith({ maxRetries: 3 }).chat.completions.create(CHAT)
    expect(completion.choices).toHaveLength(1)
  })

  it('gets an error for a broken stream, after the tokens sent before', async () => {
    for (const worker of cluster.decodes) worker.fail({ kind: 'reset', after: 'tokens', tokens: 2 })
    const stream = await client.chat.completions.create({ ...CHAT, stream: true })
    let chunks = 0
    const error = await (async () => {
      for await (const { choices } of stream) chunks += choices.length
    })().catch((reason: unknown) => reason)
    expect(error).toBeInstanceOf(APIError)
    expect(error).toMatchObject({ code: 'ELDR_STREAM_BROKEN' })
    expect(chunks).toBeGreaterThanOrEqual(2)
  })

  it('ends a request at the worker by aborting it: within a stream, before the first token, and by its own timeout', async () => {
    for (const worker of cluster.decodes) worker.fail({ kind: 'hang', after: 'tokens', tokens: 1 })
    const stream = await client.chat.completions.create({ ...CHAT, stream: true })
    // oxlint-disable-next-line no-unreachable-loop -- the first token is enough
    for await (const _ of stream) break
    stream.controller.abort()
    await cluster.idle()
    const controller = new AbortController()
    const called = client.chat.completions
      .create(CHAT, { signal: controller.signal })
      .catch((reason: unknown) => reason)
    await Promise.race(cluster.decodes.map(worker => worker.waitForActive(1)))
    controller.abort()
    expect(await called).toBeInstanceOf(APIUserAbortError)
    await cluster.idle()
    await expect(client.chat.completions.create(CHAT, { timeout: 200 })).rejects.toBeInstanceOf(
      APIConnectionTimeoutError,
    )
  })
})
