/** Routes that the gateway only passes through: responses arrive complete or end with an error. */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { type Cluster, type ClusterOptions, startCluster } from './cluster.ts'
import { postBytes, RawClient } from './raw-socket.ts'

type Answer = (request: IncomingMessage, response: ServerResponse) => void

let cluster: Cluster
const servers: Server[] = []
afterEach(async () => {
  await cluster.stop()
  for (const server of servers.splice(0)) server.close().closeAllConnections()
})

/** A gateway in front of decode workers with these responses; their health checks succeed. */
async function start(answers: readonly Answer[], config: ClusterOptions['config'] = {}): Promise<void> {
  const urls = await Promise.all(
    answers.map(async answer => {
      const server = createServer((request, response) =>
        request.url === '/health' || request.url === '/metrics' ? response.end() : answer(request, response),
      )
      servers.push(server.listen(0, '127.0.0.1'))
      await once(server, 'listening')
      return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    }),
  )
  cluster = await startCluster({
    prefill: 0,
    decode: 0,
    config: { workers: { prefill: [], decode: urls }, ...config },
  })
  const { registry } = cluster.gateway.context
  await new Promise<void>(resolve => {
    const check = () =>
      registry.candidates('decode', performance.now()).length === answers.length && (unsubscribe(), resolve())
    const unsubscribe = registry.subscribe(check)
    queueMicrotask(check)
  })
}

const stream = (response: ServerResponse) => response.writeHead(200, { 'content-type': 'text/event-stream' })
const EVENT = 'event: response.output_text.delta\ndata: {"type":"response.output_text.delta"}\n\n'
const LAST = 'event: response.completed\ndata: {"type":"response.completed"}\n\n'
const outcome = async (name: string) =>
  (await cluster.gateway.context.metrics.registry.metrics()).includes(`{route="pass",outcome="${name}"} 1`)
const ended = async (name: string) => {
  while (!(await outcome(name))) await new Promise(setImmediate)
  return true
}

describe('a stream', () => {
  it('of another API is passed on unchanged, with or without [DONE]', async () => {
    await start([(_, response) => stream(response).end(EVENT + LAST)])
    const response = await cluster.post('/v1/responses', { input: 'a', stream: true })
    expect(response.headers.get('content-type')).toBe('text/event-stream')
    expect(response.headers.get('x-accel-buffering')).toBe('no')
    expect(await response.text()).toBe(EVENT + LAST)
    expect(await ended('ok')).toBe(true)
  })

  it('that breaks ends with an error event', async () => {
    await start([
      (_, response) => void stream(response).write(EVENT, () => setImmediate(() => response.destroy())),
    ])
    const text = await (await cluster.post('/v1/responses', { stream: true })).text()
    expect(text.startsWith(EVENT)).toBe(true)
    expect(text).toContain('"code":"ELDR_STREAM_BROKEN"')
    expect(await ended('broken')).toBe(true)
  })

  it('that stalls ends with an error event', async () => {
    await start([(_, response) => void stream(response).write(EVENT)], { timeouts: { betweenTokensMs: 100 } })
    expect(await (await cluster.post('/v1/responses', { stream: true })).text()).toContain(
      '"code":"ELDR_STREAM_STALLED"',
    )
    await cluster.idle()
  })

  it('that passes its deadline ends with an error event', async () => {
    await start([(_, response) => void stream(response).write(EVENT)])
    const headers = { 'x-request-timeout-ms': '200' }
    expect(await (await cluster.post('/v1/responses', { stream: true }, { headers })).text()).toContain(
      '"code":"ELDR_DEADLINE"',
    )
    expect(await ended('timeout')).toBe(true)
    await cluster.idle()
  })

  it('whose client leaves ends at the worker', async () => {
    let left = () => {}
    const gone = new Promise<void>(resolve => (left = resolve))
    await start([(_, response) => void stream(response.on('close', left)).write(EVENT)])
    const raw = new RawClient(cluster.url).send(postBytes('{"stream":true}', '', '/v1/responses'))
    await raw.until(text => text.includes('response.output_text'))
    raw.leave()
    await gone
    expect(await ended('client_gone')).toBe(true)
    await cluster.idle()
  })

  it('is not read faster than its client reads it, and none of it is lost', async () => {
    const megabyte = 'x'.repeat(1_000_000)
    let written = 0
    await start([
      async (_, response) => {
        stream(response)
        for (; written < 40; written++) if (!response.write(megabyte)) await once(response, 'drain')
        response.end()
      },
    ])
    const { body } = await fetch(`${cluster.url}/v1/responses`, { method: 'POST', body: '{"stream":true}' })
    const reader = body!.getReader()
    let taken = (await reader.read()).value!.length
    // No write for many turns of the event loop: all buffers are full.
    for (let [before, still] = [-1, 0]; still < 300; still = written === before ? still + 1 : 0) {
      before = written
      await new Promise(setImmediate)
    }
    expect(written).toBeLessThan(40)
    for (let read = await reader.read(); !read.done; read = await reader.read()) taken += read.value.length
    expect(taken).toBe(40_000_000)
  })

  it('whose client does not read it is ended', async () => {
    await start(
      [
        (_, response) => {
          stream(response)
          for (let at = 0; at < 40; at++) response.write('x'.repeat(1_000_000))
        },
      ],
      { server: { clientStallMs: 300 } },
    )
    const raw = new RawClient(cluster.url).send(postBytes('{"stream":true}', '', '/v1/responses'))
    await raw.until(text => text.includes('xxx'))
    raw.socket.pause()
    expect(await ended('client_stalled')).toBe(true)
    await cluster.idle()
    raw.leave()
  })
})

describe('a response', () => {
  const json = (status: number, body: object) => (_: IncomingMessage, response: ServerResponse) =>
    void response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
  const get = (path: string, method = 'GET') => fetch(`${cluster.url}${path}`, { method })

  it.each([
    [200, 200, undefined],
    [404, 404, undefined],
    [422, 422, undefined],
    [429, 429, 'ELDR_OVERLOADED'],
    [500, 502, 'ELDR_DECODE_FAILED'],
    [501, 502, 'ELDR_DECODE_FAILED'],
    [302, 502, 'ELDR_DECODE_FAILED'],
  ])('with status %i has status %i for the client', async (status, wanted, code) => {
    await start([json(status, { mine: 1 })])
    const response = await cluster.post('/v1/responses', {})
    expect([response.status, response.headers.get('x-eldr-error-code')]).toEqual([wanted, code ?? null])
    expect((await response.text()).includes('mine')).toBe(code === undefined)
  })

  it('to HEAD has the headers of a GET', async () => {
    await start([json(200, { object: 'list' })])
    const response = await get('/v1/models', 'HEAD')
    expect([response.status, response.headers.get('content-length'), await response.text()]).toEqual([
      200,
      '17',
      '',
    ])
  })

  it('to a failed GET comes from another worker, to a failed POST only if no worker received it', async () => {
    let calls = 0
    const fails: Answer = (_, response) => {
      calls++
      response.writeHead(500).end('{}')
    }
    await start([fails, fails])
    expect((await get('/v1/models')).status).toBe(502)
    expect(calls).toBe(2)
    expect((await cluster.post('/v1/responses', {})).status).toBe(502)
    expect(calls).toBe(3)
  })

  it('comes from the other worker if one cannot be reached', async () => {
    await start([json(200, {}), json(200, {})])
    const gone = servers.shift()!
    gone.close().closeAllConnections()
    const statuses = await Promise.all(
      Array.from({ length: 8 }, async () => (await cluster.post('/v1/responses', {})).status),
    )
    expect(new Set(statuses)).toEqual(new Set([200]))
  })

  it('times out after the first-token timeout', async () => {
    await start([() => {}], { timeouts: { firstTokenMs: 100 }, retries: { max: 0 } })
    expect((await get('/v1/models')).status).toBe(504)
    await cluster.idle()
  })

  it('without a worker is 503 with a Retry-After', async () => {
    await start([])
    const response = await get('/v1/models')
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '1'])
  })
})
