import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { request } from 'undici'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { begin, bytesOf, chat, events, exchange, post, toPrefill } from './client.ts'
import { type FakeWorker, startFakeWorker } from './index.ts'

let worker: FakeWorker
beforeEach(async () => {
  worker = await startFakeWorker()
})
afterEach(() => worker.close())

describe('the observations of a worker', () => {
  it('include each request as received, with its body parsed on demand', async () => {
    const asked = worker.once('request')
    await exchange(
      worker,
      bytesOf(chat, undefined, 'X-Request-Id: abc\r\nX-Twice: 1\r\nx-twice: 2\r\nconnection: close\r\n'),
    )
    const got = await asked
    expect(got).toBe(worker.requests[0])
    expect(got).toMatchObject({
      method: 'POST',
      path: '/v1/chat/completions',
      leg: 'decode',
      isChat: true,
      json: chat,
      kv: undefined,
    })
    expect(got.headers).toMatchObject({ 'x-request-id': 'abc', 'x-twice': '1, 2' })
  })

  it('include the number of active requests, and aborts', async () => {
    worker.fail({ kind: 'hang', after: 'tokens', tokens: 1 })
    const clients = [begin(worker, chat), begin(worker, chat), begin(worker, chat)]
    await worker.waitForActive(3)
    const left = worker.once('abort')
    clients[0]!.leave()
    expect((await left).json).toMatchObject(chat)
    for (const client of clients) client.leave()
    await worker.waitForAborts(3)
    expect(worker.counters).toMatchObject({ active: 0, aborted: 3, completed: 0, decode: 3 })
  })

  it('are limited to the record limit', async () => {
    const brief = await startFakeWorker({ recordLimit: 2 })
    for (let n = 1; n <= 4; n++) await post(brief, { ...chat, max_tokens: n, kv_transfer_params: toPrefill })
    expect(brief.requests.map(({ json }) => json.max_tokens)).toEqual([3, 4])
    expect(brief.handoffs.size).toBe(2)
    expect(brief.counters.handoffsGiven).toBe(4)
    await brief.close()
  })

  it('include the counters when a wait times out', async () => {
    await expect(worker.waitFor(({ decode }) => decode > 0, 5)).rejects.toThrow(
      /5 ms: .*decode > 0.*"active":0/,
    )
  })
})

describe('a worker', () => {
  it('refuses connections and returns on its port; requests in flight continue', async () => {
    const { port } = worker
    let release: (value?: unknown) => void = () => undefined
    worker.failNext({
      kind: 'hang',
      after: 'tokens',
      tokens: 3,
      until: new Promise(done => (release = done)),
    })
    const under = exchange(worker, bytesOf({ ...chat, stream: true })) // keep-alive
    await worker.waitForActive(1)
    await worker.refuse()
    expect(await exchange(worker, bytesOf(chat))).toEqual({ text: '', error: 'ECONNREFUSED' })
    release()
    expect((await under).text).toContain('[DONE]') // its connection was closed with the exchange
    await worker.accept()
    expect(worker.port).toBe(port)
    expect((await post(worker, chat)).status).toBe(200)
  })

  it('restarts: connections are reset, the engine id changes, the counters are zero', async () => {
    const { engineId, port } = worker
    await post(worker, { ...chat, kv_transfer_params: toPrefill })
    worker.failNext({ kind: 'hang', after: 'request' })
    const cut = exchange(worker, bytesOf({ ...chat, stream: true }))
    await worker.waitForActive(1)
    await worker.restart()
    expect((await cut).error).toBe('ECONNRESET')
    expect(worker.engineId).not.toBe(engineId)
    expect(worker.port).toBe(port)
    expect(worker.requests).toEqual([])
    expect(worker.handoffs.size).toBe(0)
    expect(new Set(Object.values(worker.counters))).toEqual(new Set([0]))
    expect(await events(worker, { ...chat, max_tokens: 1 })).toHaveLength(3)
  })

  it('waits for a slow reader instead of buffering its stream', async () => {
    const tokens = 40_000 // about 9 MB, far beyond socket buffers
    const body = JSON.stringify({ ...chat, stream: true, max_tokens: tokens })
    const answer = await request(`${worker.url}/v1/chat/completions`, { method: 'POST', body })
    let sent = -1
    for (let still = 0; still < 100; still++) {
      if (worker.counters.tokensSent !== sent) still = 0
      sent = worker.counters.tokensSent
      await new Promise(done => setImmediate(done)) // both ends are in this event loop
    }
    expect(sent).toBeLessThan(tokens)
    expect((await answer.body.text()).match(/"content":" \d{4}"/g)).toHaveLength(tokens)
  })
})

describe('the process', () => {
  it('prints its address, serves, and exits with its standard input', async () => {
    const main = fileURLToPath(new URL('main.mjs', import.meta.url))
    const args = [main, '--role', 'prefill', '--counts', '2x4x2', '--until-stdin-ends']
    const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] })
    const exited = once(child, 'exit')
    const [line] = (await once(createInterface(child.stdout), 'line')) as [string]
    const { url, pid } = JSON.parse(line) as { url: string; pid: number }
    expect(pid).toBe(child.pid)
    const body = JSON.stringify({ ...chat, max_tokens: 1, kv_transfer_params: toPrefill })
    const answer = await request(`${url}/v1/chat/completions`, { method: 'POST', body })
    expect(((await answer.body.json()) as { kv_transfer_params: object }).kv_transfer_params).toHaveProperty(
      'eldr.layers',
      2,
    )
    const counters = await (await request(`${url}/fake/counters`)).body.json()
    expect(counters).toMatchObject({ prefill: 1, misdirected: 0, handoffsGiven: 1 })
    await request(`${url}/fake/pace`, { method: 'POST', body: '{"gapMs":30}' })
    const startMs = performance.now()
    await (
      await request(`${url}/v1/chat/completions`, {
        method: 'POST',
        body: JSON.stringify({ ...chat, max_tokens: 3 }),
      })
    ).body.dump()
    expect(performance.now() - startMs).toBeGreaterThan(2 * 30 - 2)
    child.stdin.end()
    expect(await exited).toEqual([0, null])
  })
})
