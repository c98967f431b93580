/**
 * Clients of a gateway of several processes: TLS, leaving at any moment, access control, broken connections.
 */
import { readFileSync } from 'node:fs'
import { type IncomingMessage, request as plain, type RequestOptions } from 'node:http'
import { request as secure } from 'node:https'
import { afterEach, describe, expect, it } from 'vitest'
import { readSamples, sumByName } from '../../src/cluster/metrics-text.ts'
import { freePort } from '../free-port.ts'
import { killAll, polled } from '../worker/processes.ts'
import { eventsOf } from '../gateway/cluster.ts'
import { type ProcessCluster, startProcessCluster } from '../gateway/process-cluster.ts'
import { HAS_OPENSSL, makeCertificates } from '../gateway/tls-files.ts'
import { eventually, gate } from '../gateway/watching.ts'

let cluster: ProcessCluster
afterEach(async () => {
  await cluster.stop()
  await killAll()
})

const start = async (options: Parameters<typeof startProcessCluster>[0] = {}) =>
  void (cluster = await startProcessCluster(options))
const BODY = { prompt: 'Once upon a time', stream: true }
const ask = (more: object = {}, init: RequestInit = {}) =>
  cluster.post('/v1/completions', { ...BODY, ...more }, { headers: { connection: 'close' }, ...init })
const counted = async (name: string) =>
  sumByName(
    readSamples(
      await (await fetch(`${cluster.url}/metrics`, { headers: { connection: 'close' } })).text(),
      new Set([name]),
    ),
  ).get(name)
async function nothingLeft(): Promise<void> {
  await cluster.idle()
  const names = ['eldr_tickets', 'eldr_running_requests', 'eldr_queue_length']
  await polled(
    () => Promise.all(names.map(counted)),
    all => all.every(count => count === 0),
    'counters at 0',
  )
  expect(await counted('eldr_ticket_double_releases_total')).toBe(0)
}

interface Seen {
  readonly status?: number
  readonly text: string
  readonly error?: string
}
/** One request with Node's own client, which reports how a response ended. */
function exchange(
  url: string,
  options: RequestOptions & { readonly ca?: Buffer; readonly cert?: Buffer; readonly key?: Buffer },
  body = '',
  onData?: () => void,
): Promise<Seen> {
  return new Promise(resolve => {
    const send = url.startsWith('https') ? secure : plain
    const sent = send(url, { agent: false, ...options }, (answer: IncomingMessage) => {
      let text = ''
      const status = answer.statusCode!
      answer.on('data', (chunk: Buffer) => {
        text += chunk.toString()
        onData?.()
      })
      answer.on('error', (error: NodeJS.ErrnoException) =>
        resolve({ status, text, error: error.code ?? error.message }),
      )
      answer.on('end', () => resolve({ status, text }))
    })
    sent.on('error', (error: NodeJS.ErrnoException) =>
      resolve({ text: '', error: error.code ?? error.message }),
    )
    sent.end(body)
  })
}

describe.runIf(HAS_OPENSSL)('TLS', () => {
  it('is terminated by relays, for clients with a certificate, also while the owner is replaced', async () => {
    const pairs = makeCertificates('gateway', 'client', 'worker')
    const file = (path: string) => readFileSync(path)
    const keys = (pair: 'client' | 'worker') => ({
      ca: file(pairs.gateway.certFile),
      cert: file(pairs[pair].certFile),
      key: file(pairs[pair].keyFile),
    })
    const look = (url: string) => exchange(`${url}/ready`, keys('client'))
    await start({
      ready: async url => (await look(url)).status === 200,
      config: { server: { tls: { ...pairs.gateway, caFile: pairs.client.certFile } } },
    })
    const post = (pair: 'client' | 'worker') =>
      exchange(
        `${cluster.url}/v1/completions`,
        { ...keys(pair), method: 'POST', headers: { 'content-type': 'application/json' } },
        JSON.stringify({ ...BODY, max_tokens: 3 }),
      )
    for (let n = 0; n < 4; n++)
      expect(await post('client')).toMatchObject({ status: 200, text: expect.stringContaining('[DONE]') })
    for (let n = 0; n < 2; n++) expect(await post('worker')).toHaveProperty('error')
    const pid = cluster.pidOf('owner')
    process.kill(pid, 'SIGKILL')
    expect(await post('client')).toMatchObject({ status: 200, text: expect.stringContaining('[DONE]') })
    await cluster.replaced('owner', pid)
    expect(await exchange(`${cluster.url}/eldr/workers`, keys('client'))).toMatchObject({ status: 200 })
    pairs.remove()
  })
})

describe('a client that leaves', () => {
  it('while it is queued, during prefill or within its stream leaves nothing behind', async () => {
    await start({
      config: { limits: { maxConcurrentRequests: 2, queueSize: 4, queueTimeoutMs: 600_000 } },
    })
    const { holdNoMore } = cluster.holdStreams()
    const streams = [new AbortController(), new AbortController()]
    const held = await Promise.all(streams.map(({ signal }) => ask({ max_tokens: 6 }, { signal })))
    holdNoMore()
    const waiting = [new AbortController(), new AbortController(), new AbortController()]
    const refused = waiting.map(({ signal }) => ask({}, { signal }).catch((error: Error) => error.name))
    await polled(
      () => counted('eldr_queue_length'),
      count => count === 3,
      'three queued requests',
    )
    for (const one of waiting) one.abort()
    expect(await Promise.all(refused)).toEqual(['AbortError', 'AbortError', 'AbortError'])
    await polled(
      () => counted('eldr_queue_length'),
      count => count === 0,
      'an empty queue',
    )
    for (const one of streams) one.abort()
    for (const response of held) await expect(response.text()).rejects.toThrow(/aborted/)
    await nothingLeft()
    // During prefill.
    for (const worker of cluster.prefills) worker.fail({ kind: 'hang', after: 'request' })
    const reading = new AbortController()
    const asked = ask({}, { signal: reading.signal }).catch((error: Error) => error.name)
    await eventually(
      () => cluster.prefills.some(({ counters }) => counters.active > 0),
      'a prefill in flight',
    )
    reading.abort()
    expect(await asked).toBe('AbortError')
    for (const worker of cluster.prefills) worker.clearFaults()
    await nothingLeft()
  })

  it('while there is no owner leaves nothing at the next one', async () => {
    await start({
      config: { limits: { maxConcurrentRequests: 4, queueSize: 0 } },
    })
    const { holdNoMore } = cluster.holdStreams()
    const [running, asking] = [new AbortController(), new AbortController()]
    const streams = await Promise.all(
      [0, 1, 2, 3].map(() => ask({ max_tokens: 6 }, { signal: running.signal })),
    )
    holdNoMore()
    // At capacity, and the relays know it.
    await polled(
      async () => (await ask()).status,
      status => status === 429,
      'a refusal',
    )
    const pid = cluster.pidOf('owner')
    process.kill(pid, 'SIGSTOP')
    running.abort()
    for (const response of streams) await expect(response.text()).rejects.toThrow(/aborted/)
    await eventually(
      () => cluster.decodes.every(({ counters }) => counters.active === 0),
      'workers without requests',
    )
    process.kill(pid, 'SIGKILL')
    const gone = Array.from({ length: 4 }, () =>
      ask({}, { signal: asking.signal }).catch((error: Error) => error.name),
    )
    asking.abort()
    expect(await Promise.all(gone)).toEqual(['AbortError', 'AbortError', 'AbortError', 'AbortError'])
    await cluster.replaced('owner', pid)
    await nothingLeft()
    // The last owner was at capacity; the next one has room, for both relays.
    for (let n = 0; n < 4; n++) expect((await eventsOf(await ask({ max_tokens: 2 }))).at(-1)).toBe('[DONE]')
    await nothingLeft()
  })
})

describe('access control', () => {
  it('does not trust headers that claim a loopback address', async () => {
    await start()
    const from = (localAddress: string, headers: Record<string, string | string[]> = {}) =>
      exchange(`${cluster.url}/eldr/workers`, { localAddress, headers })
    expect((await from('127.0.0.1')).status).toBe(200)
    const plainly = await from('127.0.0.2')
    expect(plainly.status).toBe(403)
    const claims: Record<string, string | string[]>[] = [
      { 'x-eldr-from': '127.0.0.1' },
      { 'X-ELDR-FROM': ['127.0.0.1', '127.0.0.1'] },
      { 'x-eldr-from': '127.0.0.1', connection: 'x-eldr-from, close' },
      { 'x-eldr-from': '', 'x-forwarded-for': '127.0.0.1', forwarded: 'for=127.0.0.1' },
    ]
    for (const headers of claims) expect(await from('127.0.0.2', headers)).toMatchObject({ status: 403 })
    expect((await from('127.0.0.1', { 'x-eldr-from': '203.0.113.9' })).status).toBe(200)
  })

  it('requires keys and tokens and limits bodies at every relay', async () => {
    await start({
      config: { server: { apiKeys: ['sk-1'], adminToken: 'admin-token-1', maxBodyBytes: 4_096 } },
    })
    const auth = (token: string) => ({ headers: { connection: 'close', authorization: `Bearer ${token}` } })
    for (let n = 0; n < 2; n++) {
      expect((await ask()).status).toBe(401)
      expect((await ask({ max_tokens: 2 }, auth('sk-1'))).status).toBe(200)
      expect((await ask({ prompt: 'x'.repeat(8_192) }, auth('sk-1'))).status).toBe(413)
      expect((await fetch(`${cluster.url}/eldr/workers`, auth('sk-1'))).status).toBe(401)
      expect((await fetch(`${cluster.url}/eldr/workers`, auth('admin-token-1'))).status).toBe(200)
      const large = {
        method: 'POST',
        body: new Uint8Array(8_192),
        headers: { ...auth('admin-token-1').headers, 'content-type': 'application/octet-stream' },
      }
      expect((await fetch(`${cluster.url}/eldr/artifact`, large)).status).toBe(413)
    }
  })
})

describe('connections of a killed relay', () => {
  it('break, so that every client sees that its response is incomplete', async () => {
    const { opened, open } = gate()
    await start()
    const { holdNoMore } = cluster.holdStreams()
    const headers = { 'content-type': 'application/json' }
    const begun: Promise<void>[] = []
    const streams = Array.from({ length: 4 }, () => {
      let first = () => {}
      begun.push(new Promise(resolve => (first = resolve)))
      return exchange(
        `${cluster.url}/v1/completions`,
        { method: 'POST', headers },
        JSON.stringify({ ...BODY, max_tokens: 6 }),
        () => first(),
      )
    })
    await Promise.all(begun)
    holdNoMore()
    // These have no byte of their response yet.
    for (const worker of cluster.decodes) worker.fail({ kind: 'hang', after: 'request', until: opened })
    const wholes = Array.from({ length: 4 }, () =>
      exchange(
        `${cluster.url}/v1/completions`,
        { method: 'POST', headers },
        JSON.stringify({ ...BODY, stream: false }),
      ),
    )
    await polled(cluster.inflight, count => count === 8, 'all requests in flight')
    for (const name of ['relay-1', 'relay-2']) process.kill(cluster.pidOf(name), 'SIGKILL')
    for (const seen of await Promise.all(streams)) {
      expect(seen).toMatchObject({ status: 200, error: 'ECONNRESET' })
      expect(seen.text).not.toContain('[DONE]')
    }
    for (const seen of await Promise.all(wholes)) expect(seen).toEqual({ text: '', error: 'ECONNRESET' })
    open()
  })

  it('break within a response that has a content-length', async () => {
    await start()
    // Larger than the socket buffers, and its client does not read.
    const text = 'y'.repeat(8 << 20)
    for (const worker of cluster.decodes)
      worker.fail({
        kind: 'answer',
        body: JSON.stringify({ choices: [{ index: 0, text, finish_reason: 'length' }] }),
      })
    const answer = await new Promise<IncomingMessage>(resolve => {
      plain(
        `${cluster.url}/v1/completions`,
        { agent: false, method: 'POST', headers: { 'content-type': 'application/json' } },
        resolve,
      ).end(JSON.stringify({ prompt: 'a' }))
    })
    expect(Number(answer.headers['content-length'])).toBeGreaterThan(8 << 20)
    const pids = ['relay-1', 'relay-2'].map(cluster.pidOf)
    for (const pid of pids) process.kill(pid, 'SIGKILL')
    const end = await new Promise(resolve => {
      answer.on('error', (error: NodeJS.ErrnoException) => resolve(error.code))
      answer.on('end', () => resolve('whole')).resume()
    })
    expect(end).toBe('ECONNRESET')
    await Promise.all(pids.map((pid, n) => cluster.replaced(`relay-${n + 1}`, pid)))
    await nothingLeft()
  })
})

describe('the metrics port', () => {
  it('has the metrics of all processes, and is open again with the next owner', async () => {
    const metricsPort = await freePort()
    await start({ config: { server: { metricsPort } } })
    const there = async () => (await exchange(`http://127.0.0.1:${metricsPort}/metrics`, {})).text
    const requests = (text: string) =>
      sumByName(readSamples(text, new Set(['eldr_time_to_first_token_seconds_count']))).get(
        'eldr_time_to_first_token_seconds_count',
      ) ?? 0
    for (let n = 0; n < 4; n++) await eventsOf(await ask({ max_tokens: 2 }))
    expect(requests(await there())).toBe(4)
    const pids = ['owner', 'relay-1'].map(cluster.pidOf)
    process.kill(pids[1]!, 'SIGKILL')
    // The count never drops.
    for (let n = 0; n < 20; n++) expect(requests(await there())).toBe(4)
    process.kill(pids[0]!, 'SIGKILL')
    expect(requests(await polled(there, text => text !== '', 'metrics'))).toBe(4)
  })
})
