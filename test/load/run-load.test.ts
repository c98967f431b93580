/** Tests the load client against fake workers: counting, kinds of failure and cleanup. */
import { readFileSync } from 'node:fs'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { addressOf, firstModel, openEndpoint } from '../../src/load/endpoint.ts'
import { figuresOf } from '../../src/load/figures.ts'
import type { LoadProgress } from '../../src/load/run-load.ts'
import { type Fault, type FakeWorker, startFakeWorker } from '../fake-worker/index.ts'
import { HAS_OPENSSL, makeCertificates } from '../gateway/tls-files.ts'
import { stopClock } from '../manual-clock.ts'
import { conversations } from '../../src/load/conversation-source.ts'
import { every, load, serve, SOURCE, stream, TWO_TOKENS } from './support.ts'

let worker: FakeWorker
beforeAll(async () => void (worker = await startFakeWorker({ gapMs: 2 })))
afterEach(() => worker.clearFaults())
afterAll(() => worker.close())

describe('the load client', () => {
  it.each(['completions', 'chat'] as const)('counts the same tokens of %s as the server', async api => {
    const progress: LoadProgress[] = []
    const run = await load(worker.url, { onProgress: now => progress.push(now) }, { api })
    const figures = figuresOf(run)
    expect(figures.requests).toEqual({ sent: 10, counted: 10, ok: 10, failed: 0 })
    expect(figures.tokens).toMatchObject({ from: 'usage', outputMean: 6 })
    expect(figures.itlMs.count).toBe(50)
    expect(figures.tpotMs.p50).toBeGreaterThan(1)
    expect(progress.at(-1)).toMatchObject({ sent: 10, ended: 10, failed: 0, tokens: 60 })
    for (const { plannedMs, sentMs, firstMs, lastMs, endedMs } of run.exchanges)
      expect([plannedMs, sentMs, firstMs, lastMs, endedMs]).toEqual(
        [plannedMs, sentMs, firstMs, lastMs, endedMs].toSorted((a, b) => a - b),
      )
    await worker.waitForActive(0)
  })

  it('continues conversations with the responses of the server', async () => {
    const before = worker.requests.length
    const load5 = { turns: 5, thinkSeconds: 1e-6, messageTokens: 4, seed: 1 }
    const loop = { kind: 'closed', concurrency: 1 } as const
    const run = await load(worker.url, { loop, source: conversations(SOURCE, load5) }, { api: 'chat' })
    expect(figuresOf(run).requests).toMatchObject({ ok: 10, failed: 0 })
    const sent = worker.requests
      .slice(before)
      .map(({ json }) => (json as { messages: { role: string; content: string }[] }).messages)
    expect(sent.map(({ length }) => length)).toEqual([1, 3, 5, 7, 9, 1, 3, 5, 7, 9])
    expect(sent[4]!.slice(0, 7)).toEqual(sent[3])
    const replies = sent[4]!.filter(({ role }) => role === 'assistant').map(({ content }) => content)
    expect(replies).toHaveLength(4)
    for (const reply of replies) expect(reply.length).toBeGreaterThan(5)
    expect(run.exchanges.every(({ text }) => text === undefined)).toBe(true)
  })

  it('sends the same bodies for the same seed, each with its index in its id', async () => {
    const before = worker.requests.length
    await load(worker.url, { loop: { kind: 'closed', concurrency: 1 } })
    await load(worker.url, { loop: every(1) })
    const sent = worker.requests
      .slice(before)
      .map(({ body, headers }) => [headers['x-request-id'], body.toString()])
    expect(sent).toHaveLength(20)
    expect(sent.slice(10).toSorted()).toEqual(sent.slice(0, 10).toSorted())
    expect(sent[0]![0]).toBe('test-0')
  })

  it('does not count the warm-up, by index or by time', async () => {
    const byNumber = figuresOf(await load(worker.url, { counts: index => index >= 4 }))
    expect(byNumber.requests).toMatchObject({ sent: 10, counted: 6, ok: 6 })
    expect(byNumber.itlMs.count).toBe(30)
    const byTime = figuresOf(
      await load(worker.url, { loop: every(2), counts: (_, fromStartMs) => fromStartMs >= 10 }),
    )
    expect(byTime.requests).toMatchObject({ sent: 10, counted: 5 })
  })

  it.each<[string, Fault]>([
    ['http_503', { kind: 'status', status: 503, message: 'full' }],
    ['reset', { kind: 'reset', after: 'request' }],
    ['truncated', { kind: 'reset', after: 'tokens', tokens: 2 }],
    ['truncated', { kind: 'truncate', tokens: 2 }],
    ['truncated', { kind: 'close', tokens: 2 }],
    ['error_event', { kind: 'error_event', tokens: 2, message: 'died' }],
    ['timeout', { kind: 'hang', after: 'tokens', tokens: 2 }],
    ['reset', { kind: 'garbage' }],
    ['bad_stream', { kind: 'answer', contentType: 'application/json', body: '{}' }],
  ])('reports a failure as %s: %j', async (kind, fault) => {
    worker.failNext(fault)
    // Only a hang lets the clock reach the timeout.
    const clock = stopClock()
    const run = load(worker.url, {
      loop: { kind: 'closed', concurrency: 1 },
      requests: 3,
      timeoutMs: 20_000,
    })
    const { errors, requests } = figuresOf(await clock.during(run, 100))
    expect(errors.map(error => [error.kind, error.count])).toEqual([[kind, 1]])
    expect(requests).toMatchObject({ ok: 2, failed: 1 })
    await worker.waitForActive(0)
  })

  it('reports a refused connection, and the error message of a server', async () => {
    const server = await serve((_, response) =>
      response.writeHead(429).end('{"error":{"message":"slow\\ndown"}}'),
    )
    expect(figuresOf(await load(server.url)).errors).toEqual([
      { kind: 'http_429', count: 10, example: 'slow down' },
    ])
    await server.stop()
    expect(figuresOf(await load(server.url)).errors).toMatchObject([{ kind: 'connect', count: 10 }])
  })

  it('counts events if the server sends no usage', async () => {
    const server = await serve((_, response) => stream(response))
    expect(figuresOf(await load(server.url)).tokens).toEqual({
      from: 'events',
      promptMean: null,
      outputMean: 2,
    })
    await server.stop()
  })

  it('stops on abort and aborts requests in flight', async () => {
    const stop = new AbortController()
    void worker.waitForActive(4).then(() => stop.abort())
    worker.fail({ kind: 'hang', after: 'headers' })
    const run = await load(worker.url, { stop: stop.signal })
    expect(run.exchanges).toHaveLength(4)
    await worker.waitForActive(0)
  })

  it('sends its API key, and asks the server for its model', async () => {
    const seen: (string | undefined)[] = []
    const server = await serve((request, response) => {
      seen.push(request.headers.authorization)
      if (request.method === 'GET') response.writeHead(200).end('{"data":[{"id":"the-model"}]}')
      else stream(response)
    })
    const endpoint = openEndpoint({ url: `${server.url}/v1/`, api: 'completions', apiKey: 'k' })
    expect(await firstModel(endpoint)).toBe('the-model')
    await endpoint.close()
    await load(server.url, { requests: 1 }, { apiKey: 'k' })
    expect(seen).toEqual(['Bearer k', 'Bearer k'])
    await server.stop()
    await expect(firstModel(openEndpoint({ url: server.url, api: 'chat' }))).rejects.toThrow(
      /ELDR_ENDPOINT_UNREACHABLE/,
    )
  })

  it('finds the API’s root in a URL, and rejects secrets in it', () => {
    expect(addressOf('http://a:8000')).toEqual({ origin: 'http://a:8000', root: '/v1' })
    expect(addressOf('https://a/team/v1/')).toEqual({ origin: 'https://a', root: '/team/v1' })
    expect(addressOf('https://a/team')).toEqual({ origin: 'https://a', root: '/team/v1' })
    for (const url of ['a:8000', 'nonsense', 'http://me:secret@a', 'http://a/?key=1'])
      expect(() => addressOf(url)).toThrow(/ELDR_USAGE/)
    expect(() => addressOf('http://me:secret@a')).not.toThrow(/secret/)
  })

  it.runIf(HAS_OPENSSL)('speaks TLS, and accepts an unverified certificate only with insecure', async () => {
    const certificates = makeCertificates('server')
    const { certFile, keyFile } = certificates.server
    const server = createServer(
      { cert: readFileSync(certFile), key: readFileSync(keyFile) },
      (request, response) => {
        request
          .resume()
          .on('end', () => response.writeHead(200, { 'content-type': 'text/event-stream' }).end(TWO_TOKENS))
      },
    )
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
    const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`
    expect(figuresOf(await load(url, {}, { insecure: true })).requests.ok).toBe(10)
    expect(figuresOf(await load(url, { requests: 1 })).errors).toMatchObject([{ kind: 'connect' }])
    server.closeAllConnections()
    await new Promise(resolve => server.close(resolve))
    certificates.remove()
  })
})
