import { Agent, request as httpRequest } from 'node:http'
import { connect } from 'node:net'
import { Readable } from 'node:stream'
import * as fc from 'fast-check'
import { Pool } from 'undici'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { bytesOf, chat, exchange } from './client.ts'
import { type FakeWorker, startFakeWorker } from './index.ts'

let worker: FakeWorker
beforeEach(async () => {
  worker = await startFakeWorker()
})
afterEach(() => worker.close())

/** One request by node:http; the raw headers show the framing of the response. */
function byHttp(
  agent: Agent,
  body: object,
): Promise<{ status: number; framing: string | undefined; text: string }> {
  return new Promise((done, fail) => {
    const sent = httpRequest(`${worker.url}/v1/chat/completions`, { method: 'POST', agent }, answer => {
      const parts: Buffer[] = []
      answer.on('data', part => parts.push(part))
      answer.on('error', fail)
      answer.on('end', () => {
        const framing = answer.headers['transfer-encoding'] ?? answer.headers['content-length']
        done({ status: answer.statusCode!, framing, text: Buffer.concat(parts).toString() })
      })
    })
    sent.on('error', fail)
    sent.end(JSON.stringify(body))
  })
}

describe('responses', () => {
  it('are understood by node:http, streamed and whole, many on one connection', async () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    for (let n = 0; n < 5; n++) {
      const whole = await byHttp(agent, chat)
      expect(whole.status).toBe(200)
      expect(whole.framing).toBe(String(Buffer.byteLength(whole.text)))
      const streamed = await byHttp(agent, { ...chat, stream: true, max_tokens: 40 })
      expect(streamed.framing).toBe('chunked')
      expect(streamed.text.endsWith('data: [DONE]\n\n')).toBe(true)
      // The role, 40 tokens, [DONE], and the empty rest.
      expect(streamed.text.split('\n\n')).toHaveLength(40 + 3)
    }
    agent.destroy()
    expect(worker.counters).toMatchObject({ connections: 1, completed: 10, decode: 10, badFraming: 0 })
  })

  it('are understood by undici, with many requests on a few connections', async () => {
    const pool = new Pool(worker.url, { connections: 4 })
    const texts = await Promise.all(
      Array.from({ length: 100 }, async (_, n) => {
        const body = JSON.stringify({ ...chat, stream: n % 2 === 0, max_tokens: 1 + n })
        const answer = await pool.request({ method: 'POST', path: '/v1/chat/completions', body })
        return [n, await answer.body.text()] as const
      }),
    )
    await pool.close()
    for (const [n, text] of texts) {
      const tokens =
        n % 2 === 0 ? text.match(/"content":" \d{4}"/g)!.length : JSON.parse(text).usage.completion_tokens
      expect(tokens).toBe(1 + n)
    }
    expect(worker.counters).toMatchObject({
      connections: 4,
      completed: 100,
      active: 0,
      aborted: 0,
      badFraming: 0,
    })
  })
})

describe('requests', () => {
  it('may have a chunked body, as undici sends a stream', async () => {
    const pool = new Pool(worker.url)
    const prompt = 'expert '.repeat(40_000)
    const body = Readable.from([
      `{"model":"fake","prompt":"`,
      prompt.slice(0, 70_001),
      prompt.slice(70_001),
      '"}',
    ])
    const answer = await pool.request({ method: 'POST', path: '/v1/completions', body })
    expect(answer.statusCode).toBe(200)
    await answer.body.dump()
    await pool.close()
    expect(worker.requests[0]!.headers['transfer-encoding']).toBe('chunked')
    expect(worker.requests[0]!.json).toEqual({ model: 'fake', prompt })
  })

  it('may be pipelined: the responses are in order', async () => {
    const pipelined = [3, 5, 2].map(max_tokens => bytesOf({ ...chat, stream: true, max_tokens }))
    const { text } = await exchange(
      worker,
      pipelined.join('') + bytesOf({ ...chat, max_tokens: 7 }, undefined, 'connection: close\r\n'),
    )
    const answers = text.split('HTTP/1.1 200 OK').slice(1)
    // The year in the date header is one more.
    expect(answers.map(answer => answer.match(/ \d{4}/g)!.length - 1)).toEqual([3, 5, 2, 7])
    expect(worker.counters).toMatchObject({ connections: 1, completed: 4 })
  })

  it('are the same however their bytes are split', async () => {
    const body = { ...chat, max_tokens: 2, note: 'ünïcödé '.repeat(50) }
    const payload = Buffer.from(JSON.stringify(body))
    const chunked = Buffer.concat([
      Buffer.from(
        'POST /v1/chat/completions?x=1 HTTP/1.1\r\nHost: fake\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1;a=b\r\n',
      ),
      payload.subarray(0, 1),
      Buffer.from(`\r\n${(payload.length - 1).toString(16)}\r\n`),
      payload.subarray(1),
      Buffer.from('\r\n0\r\nx-trailer: 1\r\n\r\n'),
    ])
    const bytes = Buffer.concat([Buffer.from(bytesOf(body)), Buffer.from('\r\n'), chunked])
    const cuts = fc.uniqueArray(fc.integer({ min: 1, max: bytes.length - 1 }), { maxLength: 12 })
    await fc.assert(
      fc.asyncProperty(cuts, async at => {
        const before = worker.requests.length
        const edges = [0, ...at.toSorted((a, b) => a - b), bytes.length]
        const { text } = await exchange(
          worker,
          ...edges.slice(1).map((edge, i) => bytes.subarray(edges[i]!, edge)),
        )
        expect(text.match(/HTTP\/1\.1 200 OK/g)).toHaveLength(2)
        const [plain, inChunks] = worker.requests.slice(before)
        expect(plain!.json).toEqual(body)
        expect(inChunks!.json).toEqual(body)
        expect([inChunks!.path, inChunks!.query, inChunks!.headers['host']]).toEqual([
          '/v1/chat/completions',
          'x=1',
          'fake',
        ])
      }),
      { numRuns: 30 },
    )
  })

  it('get 100 Continue on request', async () => {
    const socket = connect({ port: worker.port, host: '127.0.0.1' })
    const bytes = bytesOf(
      { ...chat, max_tokens: 1 },
      undefined,
      'expect: 100-continue\r\nconnection: close\r\n',
    )
    const head = bytes.indexOf('\r\n\r\n') + 4
    socket.write(bytes.slice(0, head))
    const parts: string[] = []
    for await (const part of socket) {
      parts.push(String(part))
      if (parts.length === 1) socket.write(bytes.slice(head))
    }
    expect(parts[0]).toBe('HTTP/1.1 100 Continue\r\n\r\n')
    expect(parts.slice(1).join('')).toContain('HTTP/1.1 200 OK')
  })

  it.each([
    ['not HTTP', 'hello\r\n\r\n'],
    ['two lengths', 'POST /v1/completions HTTP/1.1\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\n{}'],
    [
      'a length with chunks',
      'POST /v1/completions HTTP/1.1\r\ncontent-length: 7\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n',
    ],
    ['a length that is not a number', 'POST /v1/completions HTTP/1.1\r\ncontent-length: 2x\r\n\r\n{}'],
    [
      'a chunk that is longer than its size',
      'POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n',
    ],
    ['an endless head', `GET / HTTP/1.1\r\n${'x: y\r\n'.repeat(20_000)}`],
  ])('are refused for invalid framing: %s', async (_, bytes) => {
    const { text } = await exchange(worker, bytes)
    expect(text.startsWith('HTTP/1.1 400 Bad Request\r\n')).toBe(true)
    expect(worker.counters).toMatchObject({ badFraming: 1, active: 0, completed: 0 })
  })

  it('lose an idle connection after the keep-alive timeout', async () => {
    const hasty = await startFakeWorker({ keepAliveMs: 20 })
    const { text, error } = await exchange(hasty, bytesOf(chat))
    expect(text.startsWith('HTTP/1.1 200 OK')).toBe(true)
    expect(error).toBeUndefined()
    await hasty.close()
  })
})
