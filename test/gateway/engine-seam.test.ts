/** The flow knows no engine: it serves one that binds the decode worker before prefill as it serves vLLM. */
import { afterEach, describe, expect, it } from 'vitest'
import type { WorkerSpec } from '../../src/cluster/worker.ts'
import type { Handoff } from '../../src/gateway/engines/engine.ts'
import { type ClientRequest, readRequest } from '../../src/gateway/http/client-request.ts'
import { ENGINE_NAMES, loadEngine } from '../../src/gateway/engines/engine-table.ts'
import type { RequestObserver } from '../../src/gateway/observe/request-observer.ts'
import type { FakeWorker, ReceivedRequest } from '../fake-worker/index.ts'
import { type Cluster, eventsOf, startCluster } from './cluster.ts'
import { pushEngine } from './push-engine.ts'
import { eventually, metric, watchTickets } from './watching.ts'

let cluster: Cluster
afterEach(() => cluster?.stop())

async function start(
  prefill: number,
  decode: number,
  observers: readonly RequestObserver[] = [],
  workers: Record<string, unknown> = {},
) {
  cluster = await startCluster({
    prefill,
    decode,
    engine: pushEngine(),
    observers,
    prefillOptions: { protocol: 'push' },
    decodeOptions: { protocol: 'push' },
    config: { routing: { policy: 'round_robin', prefillPolicy: 'round_robin' }, workers },
  })
  return watchTickets(cluster)
}

const ask = (more: object = {}, init?: RequestInit) =>
  cluster.post('/v1/completions', { prompt: 'Once upon a time', max_tokens: 8, stream: true, ...more }, init)

describe('an engine that pushes its KV cache to the decode worker', () => {
  it('is served on both legs, and only the chosen decode worker gets the hand-off', async () => {
    const tickets = await start(2, 3)
    for (let n = 0; n < 6; n++) expect(await eventsOf(await ask())).toHaveLength(9)
    await tickets.settled()
    const pushes = cluster.prefills.flatMap(({ requests }) =>
      requests.filter(({ leg }) => leg === 'prefill').map(({ json }) => json.push_kv.to as string),
    )
    expect(new Set(pushes)).toEqual(new Set(cluster.decodes.map(({ url }) => url)))
    expect(cluster.decodes.map(({ counters }) => counters.handoffsRead)).toEqual([2, 2, 2])
    expect(cluster.decodes.map(({ counters }) => counters.handoffsUnknown + counters.noKv)).toEqual([0, 0, 0])
    // The decode worker counts as loaded while prefill runs: it is dispatched first.
    expect(tickets.dispatches.slice(0, 2).map(({ leg }) => leg)).toEqual(['decode', 'prefill'])
  })

  it('cannot be told by a client where to push or what to read', async () => {
    await start(1, 1)
    await (await ask({ push_kv: { to: 'http://elsewhere' }, pushed_kv: 'of another client' })).text()
    const request = cluster.prefills[0]!.requests.find(({ leg }) => leg === 'prefill')
    expect([request!.json.push_kv.to, request!.json.pushed_kv]).toEqual([cluster.decodes[0]!.url, undefined])
  })

  it('prefills again for another decode worker if the chosen one fails', async () => {
    const tickets = await start(1, 2)
    let struck = false
    for (const worker of cluster.decodes)
      worker.fail(
        { kind: 'status', status: 503 },
        { match: ({ isGeneration }) => isGeneration && !struck && (struck = true) },
      )
    expect(await eventsOf(await ask())).toHaveLength(9)
    await tickets.settled()
    expect(cluster.prefills[0]!.counters.prefill).toBe(2)
    expect(await metric(cluster, 'eldr_retries_total', { leg: 'decode' })).toBe(1)
  })

  it('gives the decode worker back if prefill fails, and blames prefill alone', async () => {
    const tickets = await start(1, 1)
    cluster.prefills[0]!.fail({ kind: 'status', status: 500 })
    expect((await ask()).status).toBe(502)
    await tickets.settled()
    expect(tickets.dispatches.map(({ leg, ends }) => [leg, ...ends])).toEqual([
      ['decode', 'ignored'],
      ['prefill', 'failed'],
    ])
  })

  it('frees the hand-off at the chosen worker if the client leaves between the legs', async () => {
    const leaving: RequestObserver = {
      observe: ({ exchange }) => ({
        attemptEnded: (_, { kind }) => void (kind === 'handed_off' && exchange.stop('client_gone')),
      }),
    }
    const tickets = await start(1, 2, [leaving])
    const client = new AbortController()
    const response = ask({}, { signal: client.signal }).catch(() => undefined)
    await eventually(
      async () => (await metric(cluster, 'eldr_handoffs_released_total')) === 1,
      'the hand-off is released',
    )
    client.abort()
    await response
    await tickets.settled()
    const [{ json }] = cluster.prefills[0]!.requests.filter(({ leg }) => leg === 'prefill') as [
      ReceivedRequest,
    ]
    const chosen = cluster.decodes.filter(({ counters }) => counters.handoffsRead === 1)
    expect(chosen.map(({ url }) => url)).toEqual([json.push_kv.to])
  })
})

describe('private fields of an engine', () => {
  const TOKEN = { choices: [{ index: 0, text: 'a' }] }
  const PRIVATE = { ...TOKEN, pushed: { id: 'x' }, usage: { prompt_tokens: 1, completion_tokens: 1 } }
  const isClean = (text: string) => text.includes('"text":"a"') && !text.includes('pushed')

  it.each([1, 2])('do not reach clients in a whole response of %i choices', async n => {
    await start(1, 1)
    cluster.decodes[0]!.fail({ kind: 'answer', body: JSON.stringify({ ...PRIVATE, experts: {} }) })
    const text = await (await ask({ stream: false, n })).text()
    expect(text).toSatisfy(isClean)
    expect(text).not.toContain('experts')
  })

  it.each([1, 2])('do not reach clients in a stream of %i choices', async n => {
    await start(1, 1)
    const head = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n'
    const event = `data: ${JSON.stringify(PRIVATE)}\n\n`
    // The second chunk ends within an event.
    const all = `${event}${event}data: [DONE]\n\n`
    const chunks = [event, all.slice(event.length, event.length + 20), all.slice(event.length + 20), '']
    const framed = chunks.map(chunk => `${chunk.length.toString(16)}\r\n${chunk}\r\n`).join('')
    cluster.decodes[0]!.fail({ kind: 'garbage', bytes: head + framed })
    const events = await eventsOf(await ask({ n }))
    expect(events).toHaveLength(2 * n + 1)
    expect(events.at(-1)).toBe('[DONE]')
    for (const data of events.slice(0, -1)) expect(data).toSatisfy(isClean)
  })
})

describe('an adapter that throws', () => {
  const broken = () => {
    throw new Error('a broken adapter')
  }

  it.each(['prefillBody', 'readHandoff', 'decodeBody', 'rankHeaders', 'missingRank'] as const)(
    'in %s fails the request and leaves nothing behind',
    async method => {
      const vllm = await loadEngine('vllm-nixl', { reuseTokenIds: false })
      cluster = await startCluster({ prefill: 1, decode: 1, engine: { ...vllm, [method]: broken } })
      const tickets = watchTickets(cluster)
      const response = await ask()
      expect([response.status, response.headers.get('x-eldr-error-code')]).toEqual([500, 'ELDR_INTERNAL'])
      await tickets.settled()
    },
  )

  it.each(['/v1/completions', '/tokenize'])('in aloneBody fails the request, on %s', async path => {
    const vllm = await loadEngine('vllm-nixl', { reuseTokenIds: false })
    cluster = await startCluster({ prefill: 1, decode: 1, engine: { ...vllm, aloneBody: broken } })
    const tickets = watchTickets(cluster)
    const response = await cluster.post(path, { prompt: 'a', max_tokens: 1 })
    expect([response.status, response.headers.get('x-eldr-error-code')]).toEqual([500, 'ELDR_INTERNAL'])
    await tickets.settled()
  })

  it('in releaseRequest leaves the hand-off to its lease', async () => {
    const vllm = await loadEngine('vllm-nixl', { reuseTokenIds: false })
    cluster = await startCluster({ prefill: 1, decode: 1, engine: { ...vllm, releaseRequest: broken } })
    const tickets = watchTickets(cluster)
    cluster.decodes[0]!.fail({ kind: 'status', status: 400 })
    expect((await ask()).status).toBe(400)
    await tickets.settled()
    expect(cluster.decodes[0]!.counters.decode).toBe(1)
  })
})

describe('a rank', () => {
  it('that is a field of the body is sent with every request to a worker', async () => {
    const tickets = await start(1, 1, [], { prefillRanks: 2, decodeRanks: 2 })
    const [prefill, decode] = [cluster.prefills[0]!, cluster.decodes[0]!]
    const ranksOf = async (worker: FakeWorker, path: string, more: object) => {
      const before = worker.requests.length
      for (let n = 0; n < 2; n++) {
        const response = await cluster.post(path, { prompt: 'a b c', stream: false, rank: 7, ...more })
        expect([response.status, await response.text()]).toEqual([200, expect.any(String)])
      }
      const posts = worker.requests.slice(before).filter(({ method }) => method === 'POST')
      return posts.map(({ json }) => json.rank as unknown).toSorted()
    }
    expect(await ranksOf(prefill, '/v1/completions', { max_tokens: 4 })).toEqual([0, 1])
    expect(await ranksOf(decode, '/v1/completions', { max_tokens: 4 })).toEqual([0, 1])
    expect(await ranksOf(prefill, '/v1/completions', { max_tokens: 1 })).toEqual([0, 1])
    expect(await ranksOf(decode, '/v1/completions', { best_of: 2 })).toEqual([0, 1])
    expect(await ranksOf(decode, '/tokenize', {})).toEqual([0, 1])
    await tickets.settled()
  })

  it('may be a field of the body: the adapter knows the worker of each leg', () => {
    const engine = pushEngine()
    const request = readRequest('completions', Buffer.from('{"prompt":"a"}'), engine) as ClientRequest
    const worker: WorkerSpec = { id: 'd', role: 'decode', url: 'http://d', dpRank: 3 }
    const handoff = { transfer: Buffer.from('"x"') } as Handoff
    const bodies = [
      engine.prefillBody(request, worker, worker),
      engine.decodeBody(request, handoff, worker),
      engine.aloneBody(request, worker),
      engine.releaseRequest({ request, path: '/', handoff, prefill: worker, decode: worker })!.body,
    ]
    for (const body of bodies) expect(JSON.parse(body.toString())).toMatchObject({ rank: 3 })
  })
})

describe('the table of engines', () => {
  it('loads an adapter for every name that the configuration takes', async () => {
    for (const name of ENGINE_NAMES)
      expect((await loadEngine(name, { reuseTokenIds: false })).name).toBe(name)
  })
})
