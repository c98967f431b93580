import { gunzipSync } from 'node:zlib'
import { request } from 'undici'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { begin, bytesOf, chat, events, exchange, post, toPrefill } from './client.ts'
import { type Fault, type FakeWorker, startFakeWorker } from './index.ts'

let worker: FakeWorker
beforeEach(async () => {
  worker = await startFakeWorker()
})
afterEach(() => worker.close())

const whole = { ...chat, max_tokens: 8 }
const streamed = { ...whole, stream: true }
const tokensIn = (text: string) => text.match(/"content":" \d{4}"/g)?.length ?? 0
/** One response as bytes; either side may close the connection. */
const once = (body: object) => exchange(worker, bytesOf(body, undefined, 'connection: close\r\n'))

describe('faults', () => {
  it('apply the given number of times', async () => {
    worker.fail({ kind: 'status', status: 503 }, { times: 2 })
    const statuses = [await post(worker, whole), await post(worker, whole), await post(worker, whole)].map(
      ({ status }) => status,
    )
    expect(statuses).toEqual([503, 503, 200])
    expect(worker.counters).toMatchObject({ faulted: 2, completed: 1 })
  })

  it('apply to all requests until cleared; the first of several applies', async () => {
    worker.fail({ kind: 'status', status: 429 })
    worker.fail({ kind: 'status', status: 500 })
    for (let n = 0; n < 3; n++) expect((await post(worker, whole)).status).toBe(429)
    worker.clearFaults()
    expect((await post(worker, whole)).status).toBe(200)
  })

  it('apply only to matching requests; default: completions and chats', async () => {
    worker.fail({ kind: 'status', status: 500 }, { match: ({ leg }) => leg === 'prefill' })
    worker.fail({ kind: 'status', status: 503 }, { match: ({ path }) => path === '/health' })
    expect((await post(worker, whole)).status).toBe(200)
    expect((await post(worker, { ...whole, kv_transfer_params: toPrefill })).status).toBe(500)
    expect((await request(`${worker.url}/health`)).statusCode).toBe(503)
    expect((await request(`${worker.url}/v1/models`)).statusCode).toBe(200)
  })
})

describe('errors', () => {
  it.each([
    [400, 'BadRequestError'],
    [429, 'RateLimitError'],
    [500, 'InternalServerError'],
    [503, 'ServiceUnavailableError'],
  ])('of status %i have vLLM’s body', async (status, type) => {
    worker.failNext({ kind: 'status', status, message: 'no', headers: { 'retry-after': '7' } })
    const { text } = await once(whole)
    expect(text).toContain('retry-after: 7\r\n')
    expect(JSON.parse(text.slice(text.indexOf('{')))).toEqual({
      error: { message: 'no', type, param: null, code: status },
    })
  })
})

describe('a reset', () => {
  it('applies to a new connection', async () => {
    worker.failNext({ kind: 'reset', after: 'accept' })
    expect(await once(whole)).toEqual({ text: '', error: 'ECONNRESET' })
    expect((await once(whole)).error).toBeUndefined()
  })

  it.each<[string, Fault, object, (text: string) => void]>([
    ['after the request', { kind: 'reset', after: 'request' }, whole, text => expect(text).toBe('')],
    [
      'after the head',
      { kind: 'reset', after: 'headers' },
      whole,
      text => expect(text).toMatch(/content-length: \d+\r\n\r\n$/),
    ],
    [
      'after the head of a stream',
      { kind: 'reset', after: 'headers' },
      streamed,
      text => expect(text).toMatch(/chunked\r\n\r\n$/),
    ],
    [
      'after three tokens',
      { kind: 'reset', after: 'tokens', tokens: 3 },
      streamed,
      text => expect(tokensIn(text)).toBe(3),
    ],
    [
      'after all tokens',
      { kind: 'reset', after: 'tokens', tokens: 8 },
      streamed,
      text => expect(text).not.toContain('[DONE]'),
    ],
  ])('comes %s', async (_, fault, body, check) => {
    worker.failNext(fault)
    const { text, error } = await once(body)
    expect(error).toBe('ECONNRESET')
    check(text)
    expect(worker.counters).toMatchObject({ faulted: 1, aborted: 0, active: 0 })
  })
})

describe('silence', () => {
  it.each<Fault>([
    { kind: 'hang', after: 'request' },
    { kind: 'hang', after: 'headers' },
    { kind: 'hang', after: 'tokens', tokens: 2 },
  ])('lasts until the peer leaves: $after', async fault => {
    worker.failNext(fault)
    const asked = worker.once('request')
    const client = begin(worker, whole)
    await asked
    expect(worker.counters.active).toBe(1)
    client.leave()
    await worker.waitForAborts(1)
    expect(worker.counters).toMatchObject({ active: 0, aborted: 1, completed: 0 })
  })

  it.each<[string, object]>([
    ['request', whole],
    ['headers', whole],
    ['headers', streamed],
    ['tokens', streamed],
  ])('ends when its promise resolves: %s of %j', async (after, body) => {
    let release: (value?: unknown) => void = () => undefined
    const until = new Promise(done => (release = done))
    worker.failNext({ kind: 'hang', after: after as 'request' | 'headers' | 'tokens', tokens: 2, until })
    const answer = once(body)
    await worker.waitForActive(1)
    release()
    const { text } = await answer
    expect(text.match(/ 000\d/g)).toHaveLength(8)
    expect(worker.counters).toMatchObject({ active: 0, completed: 1 })
  })
})

describe('a broken response', () => {
  it('may not be HTTP', async () => {
    worker.failNext({ kind: 'garbage' })
    await expect(
      request(`${worker.url}/v1/chat/completions`, { method: 'POST', body: JSON.stringify(whole) }),
    ).rejects.toThrow('HTTP')
    worker.failNext({ kind: 'garbage', bytes: 'SSH-2.0\r\n' })
    expect((await once(whole)).text).toBe('SSH-2.0\r\n')
  })

  it('may be shorter than its content-length', async () => {
    worker.failNext({ kind: 'truncate' })
    const { text } = await once(whole)
    const said = Number(/content-length: (\d+)/.exec(text)![1])
    expect(text.length - text.indexOf('\r\n\r\n') - 4).toBe(said >> 1)
    worker.failNext({ kind: 'truncate' })
    await expect(post(worker, whole)).rejects.toThrow('closed')
  })

  it('may be truncated inside a chunk', async () => {
    worker.failNext({ kind: 'truncate', tokens: 3 })
    const { text } = await once(streamed)
    expect([tokensIn(text), text.endsWith('"content":"')]).toEqual([3, true])
    worker.failNext({ kind: 'truncate', tokens: 3 })
    await expect(events(worker, whole)).rejects.toThrow('closed')
  })

  it('may have another content type or body', async () => {
    worker.failNext({ kind: 'answer', contentType: 'text/html' })
    expect((await once(streamed)).text).toMatch(/content-type: text\/html\r\n[^]*\[DONE\]/)
    worker.failNext({ kind: 'answer', contentType: 'text/html', body: '<p>not here</p>' })
    expect((await once(whole)).text).toMatch(
      /content-type: text\/html\r\ncontent-length: 15\r\n\r\n<p>not here<\/p>$/,
    )
  })

  it('may be correct and slow', async () => {
    worker.fail({ kind: 'slow', bytes: 300, everyMs: 1 })
    expect(tokensIn((await events(worker, whole)).join())).toBe(8)
    expect((await post(worker, whole)).json.usage.completion_tokens).toBe(8)
    expect(worker.counters).toMatchObject({ completed: 2, active: 0 })
  })

  it('may be compressed if the client accepts it', async () => {
    worker.fail({ kind: 'gzip' })
    for (const stream of [false, true]) {
      const send = async (encoding: string) => {
        const headers = { 'accept-encoding': encoding }
        const body = JSON.stringify({ ...whole, stream })
        const answer = await request(`${worker.url}/v1/chat/completions`, { method: 'POST', body, headers })
        return [answer.headers['content-encoding'], Buffer.from(await answer.body.arrayBuffer())] as const
      }
      const [encoding, packed] = await send('gzip, br')
      const [none, plain] = await send('identity')
      expect([encoding, none]).toEqual(['gzip', undefined])
      expect(gunzipSync(packed)).toHaveLength(plain.length)
    }
  })
})

describe('a stream', () => {
  it('may end without [DONE] and keep its connection', async () => {
    worker.failNext({ kind: 'close', tokens: 5 })
    const { text } = await exchange(
      worker,
      bytesOf(streamed),
      bytesOf(whole, undefined, 'connection: close\r\n'),
    )
    const [cut, next] = text.split('HTTP/1.1 200 OK').slice(1)
    expect([tokensIn(cut!), cut!.includes('[DONE]'), cut!.endsWith('\r\n0\r\n\r\n')]).toEqual([
      5,
      false,
      true,
    ])
    expect(next).toContain('"completion_tokens":8')
  })

  it('may contain vLLM’s error event', async () => {
    worker.failNext({ kind: 'error_event', tokens: 2 })
    const got = await events(worker, whole)
    expect(got).toHaveLength(1 + 2 + 2)
    expect(JSON.parse(got[3]!.slice('data: '.length))).toMatchObject({
      error: { type: 'InternalServerError', code: 500 },
    })
    expect(got[4]).toBe('data: [DONE]')
  })
})
