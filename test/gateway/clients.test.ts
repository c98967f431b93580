/**
 * Clients that leave, do not read or read slowly: both legs end at once, nothing is left over or buffered.
 */
import { once } from 'node:events'
import { type Socket, connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, describe, expect, it } from 'vitest'
import type { Exchange } from '../../src/gateway/http/exchange.ts'
import type { Fault } from '../fake-worker/index.ts'
import { type Cluster, type ClusterOptions, eventsOf, startCluster } from './cluster.ts'
import { ManualClock } from '../manual-clock.ts'
import { RawClient, postBytes } from './raw-socket.ts'
import { type TicketWatch, eventually, metric, stopCluster, watchTickets } from './watching.ts'

let cluster: Cluster
let tickets: TicketWatch
let clock: ManualClock | undefined
const clients: { destroy(): void }[] = []
afterEach(async () => {
  clock?.uninstall()
  clock = undefined
  for (const client of clients.splice(0)) client.destroy()
  await stopCluster(cluster)
})

async function start(options: ClusterOptions = {}): Promise<void> {
  cluster = await startCluster({ prefill: 1, decode: 1, ...options })
  tickets = watchTickets(cluster)
}

const body = (more: object = {}) => ({ prompt: 'Once upon a time', max_tokens: 64, stream: true, ...more })
const tokensIn = (text: string) => text.match(/"text":"/g)?.length ?? 0
const outcomes = (outcome: string) =>
  metric(cluster, 'eldr_requests_total', { route: 'completions', outcome })

function send(more: object = {}): RawClient {
  const client = new RawClient(cluster.url)
  clients.push(client.socket)
  return client.send(postBytes(JSON.stringify(body(more))))
}

const LEAVE = {
  'closes its connection': (client: RawClient) => client.socket.destroy(),
  'resets its connection': (client: RawClient) => client.socket.resetAndDestroy(),
  'half-closes its connection': (client: RawClient) => client.socket.end(),
}

describe.each(Object.entries(LEAVE))('a client that %s', (_, leave) => {
  it.each([true, false])('during prefill leaves nothing behind (stream: %s)', async stream => {
    await start()
    cluster.prefills[0]!.fail({ kind: 'hang', after: 'request' })
    const client = send({ stream })
    await cluster.prefills[0]!.waitForActive(1)
    leave(client)
    await cluster.prefills[0]!.waitForAborts(1)
    await tickets.settled()
    expect(tickets.dispatches).toMatchObject([{ leg: 'prefill', ends: ['ignored'] }])
    expect([await outcomes('client_gone'), cluster.decodes[0]!.counters.decode]).toEqual([1, 0])
  })

  it.each<[string, boolean, Fault]>([
    ['before the headers of the decode stream', true, { kind: 'hang', after: 'request' }],
    ['before its first token', true, { kind: 'hang', after: 'headers' }],
    ['before the response', false, { kind: 'hang', after: 'request' }],
    ['within the response', false, { kind: 'hang', after: 'headers' }],
    ['within a stream that stalls', true, { kind: 'hang', after: 'tokens', tokens: 3 }],
  ])('%s leaves nothing behind', async (_name, stream, fault) => {
    await start()
    const decode = cluster.decodes[0]!
    decode.fail(fault)
    const client = send({ stream })
    await decode.waitForActive(1)
    if (fault.kind === 'hang' && fault.after === 'tokens') await client.until(text => tokensIn(text) === 3)
    leave(client)
    await decode.waitForAborts(1)
    await tickets.settled()
    expect(tickets.dispatches.map(({ leg, ends }) => [leg, ...ends])).toEqual([
      ['prefill', 'succeeded'],
      ['decode', 'ignored'],
    ])
    expect([await outcomes('client_gone'), await metric(cluster, 'eldr_retries_total')]).toEqual([1, 0])
  })

  it('within a running stream ends it at the worker', async () => {
    await start({ decodeOptions: { gapMs: 2 } })
    const client = send({ max_tokens: 100_000 })
    await client.until(text => tokensIn(text) > 5)
    leave(client)
    await cluster.decodes[0]!.waitForAborts(1)
    await tickets.settled()
    expect(await outcomes('client_gone')).toBe(1)
  })

  it('after asking for several choices ends all of them', async () => {
    await start({ prefill: 2, decode: 2 })
    for (const decode of cluster.decodes) decode.fail({ kind: 'hang', after: 'tokens', tokens: 1 })
    const client = send({ prompt: ['a', 'b'], n: 3 })
    await client.until(text => tokensIn(text) === 6)
    leave(client)
    await Promise.all(cluster.decodes.map(decode => decode.waitForActive(0)))
    await tickets.settled()
    expect(
      tickets.dispatches.filter(({ leg, ends }) => leg === 'decode' && ends[0] === 'ignored'),
    ).toHaveLength(6)
    expect(await outcomes('client_gone')).toBe(1)
  })

  it('while it is queued is never dispatched', async () => {
    await start({ config: { limits: { maxConcurrentRequests: 1 } } })
    let goOn = () => {}
    cluster.decodes[0]!.failNext({
      kind: 'hang',
      after: 'request',
      until: new Promise<void>(resolve => (goOn = resolve)),
    })
    const first = send()
    await cluster.decodes[0]!.waitForActive(1)
    const second = send({ prompt: 'never' })
    await eventually(async () => (await metric(cluster, 'eldr_queue_length')) === 1)
    leave(second)
    goOn()
    await first.until(text => text.includes('[DONE]'))
    await tickets.settled()
    expect(cluster.prefills[0]!.requests.filter(({ json }) => json?.prompt === 'never')).toEqual([])
    expect([await outcomes('ok'), await outcomes('client_gone')]).toEqual([1, 1])
  })
})

describe('a client that leaves between the legs', () => {
  /** The exchange of the next request that starts its prefill. */
  function nextExchange(): Promise<Exchange> {
    const { upstreams } = cluster.gateway.context
    const ask = upstreams.ask.bind(upstreams)
    return new Promise(resolve => {
      upstreams.ask = (origin, request, limits, ...stops) => {
        if (request.method === 'POST') resolve(stops[0] as Exchange)
        return ask(origin, request, limits, ...stops)
      }
    })
  }

  /** How often each hand-off was read, and how many were released. */
  async function released(): Promise<{ reads: number[]; count: number }> {
    const [prefill, decode] = [cluster.prefills[0]!, cluster.decodes[0]!]
    await decode.waitFor(({ handoffsRead }) => handoffsRead === 1)
    await tickets.settled()
    expect(decode.counters).toMatchObject({ decode: 1, noKv: 0 })
    expect(decode.requests.at(-1)!.json).toMatchObject({ stream: false, max_tokens: 1 })
    expect(tickets.dispatches.at(-1)).toMatchObject({ leg: 'decode', ends: ['ignored'] })
    return {
      reads: [...prefill.handoffs.values()],
      count: await metric(cluster, 'eldr_handoffs_released_total'),
    }
  }

  /** The next client leaves as soon as prefill has responded. */
  function leaveAfterPrefill(): void {
    const { restarts } = cluster.gateway.context
    const exchange = nextExchange()
    const saw = restarts.sawEngineId.bind(restarts)
    let gone: Exchange | undefined
    void exchange.then(known => (gone = known))
    restarts.sawEngineId = (...seen) => {
      saw(...seen)
      gone!.stop('client_gone')
    }
  }

  it.each([true, false])(
    'has its blocks released by a decode request of one token (stream: %s)',
    async stream => {
      await start({ decodeOptions: { gapMs: 5 } })
      leaveAfterPrefill()
      send({ stream, max_tokens: 100_000 })
      expect(await released()).toEqual({ reads: [1], count: 1 })
      expect(cluster.decodes[0]!.counters).toMatchObject({ aborted: 0 })
    },
  )

  it('during prefill has its blocks given back if the prefill worker responds before it notices', async () => {
    await start()
    const prefill = cluster.prefills[0]!
    let respond = () => {}
    const until = new Promise<void>(resolve => (respond = resolve))
    prefill.failNext({ kind: 'hang', after: 'request', until, unaware: true })
    const exchange = nextExchange()
    const client = send({ max_tokens: 100_000 })
    await prefill.waitForActive(1)
    client.socket.destroy()
    const left = await exchange
    await eventually(() => left.stopped !== undefined, 'the gateway knows that the client left')
    respond()
    expect(await released()).toEqual({ reads: [1], count: 1 })
    expect(prefill.counters).toMatchObject({ prefill: 1, aborted: 0 })
    expect(await outcomes('client_gone')).toBe(1)
  })

  it('has the release called off if the worker does not respond to it in time', async () => {
    await start()
    cluster.decodes[0]!.failNext({ kind: 'hang', after: 'request' })
    leaveAfterPrefill()
    send({ max_tokens: 100_000 })
    await cluster.decodes[0]!.waitFor(({ aborted }) => aborted === 1)
    await tickets.settled()
    expect(tickets.dispatches.at(-1)).toMatchObject({ leg: 'decode', ends: ['ignored'] })
  })

  it('has its blocks released by another worker if the first cannot be reached', async () => {
    await start({ decode: 2 })
    const [gone, other] = cluster.decodes
    await gone!.close()
    leaveAfterPrefill()
    send({ max_tokens: 100_000 })
    await other!.waitFor(({ handoffsRead }) => handoffsRead === 1)
    await tickets.settled()
    expect(other!.counters).toMatchObject({ decode: 1, noKv: 0 })
    expect(await metric(cluster, 'eldr_handoffs_released_total')).toBe(1)
  })

  it('has its blocks released while the decode request waits for its connection', async () => {
    await start()
    const { upstreams } = cluster.gateway.context
    upstreams.forget(cluster.decodes[0]!.url)
    const open = upstreams.open.bind(upstreams)
    const exchange = nextExchange()
    let opened = 0
    upstreams.open = (origin, request, to) => {
      const call = open(origin, request, to)
      if (origin === cluster.decodes[0]!.url && request.method === 'POST' && opened++ === 0)
        void exchange.then(known => known.stop('client_gone'))
      return call
    }
    send({ max_tokens: 100_000 })
    expect(await released()).toEqual({ reads: [1], count: 1 })
  })
})

describe('a request with several prompts of which one is refused', () => {
  it('has the blocks of the others given back if prefill responds before it notices', async () => {
    await start()
    const [prefill, decode] = [cluster.prefills[0]!, cluster.decodes[0]!]
    let respond = () => {}
    const until = new Promise<void>(resolve => (respond = resolve))
    const isBad = ({ json }: { json: { prompt?: unknown } }) => json.prompt === 'bad'
    prefill.failNext({ kind: 'status', status: 400, message: 'bad' }, { match: isBad })
    prefill.failNext(
      { kind: 'hang', after: 'request', until, unaware: true },
      { match: request => request.leg === 'prefill' && !isBad(request) },
    )
    const response = await cluster.post('/v1/completions', body({ prompt: ['good', 'bad'], stream: false }))
    expect([response.status, await response.text()]).toEqual([400, expect.stringContaining('bad')])
    respond()
    await decode.waitFor(({ handoffsRead }) => handoffsRead === 1)
    await tickets.settled()
    expect([...prefill.handoffs.values()]).toEqual([1])
    expect(decode.requests.at(-1)!.json).toMatchObject({ prompt: 'good', stream: false, max_tokens: 1 })
    expect(await metric(cluster, 'eldr_handoffs_released_total')).toBe(1)
  })
})

/** A client that does not read until `read` is called. */
function sendUnread(more: object): {
  readonly socket: Socket
  read(): Promise<{ events: number; end: string }>
} {
  const { hostname, port } = new URL(cluster.url)
  const socket = connect({ host: hostname, port: Number(port) })
  clients.push(socket)
  socket.pause()
  socket.on('error', () => {})
  socket.write(postBytes(JSON.stringify(body(more)), 'Connection: close\r\n'))
  return {
    socket,
    async read() {
      let [events, end] = [0, '']
      socket.setEncoding('latin1').on('data', (part: string) => {
        events += part.split('data: ').length - 1
        end = (end + part).slice(-500)
      })
      socket.resume()
      await once(socket, 'close')
      return { events, end }
    },
  }
}

/**
 * Resolves when the gateway has stopped reading from the worker: no token was sent for many turns of the
 * event loop.
 */
async function stuck(): Promise<number> {
  const [decode] = cluster.decodes
  await decode!.waitFor(({ tokensSent }) => tokensSent > 2_000)
  for (
    let [sent, still] = [0, 0];
    still < 300;
    still = decode!.counters.tokensSent === sent ? still + 1 : 0
  ) {
    sent = decode!.counters.tokensSent
    await new Promise(setImmediate)
  }
  return decode!.counters.tokensSent
}

/** 220 MB: more than all kernel buffers on the path. */
const ENDLESS = 1_000_000
/** Tokens that fit into the kernel buffers of two connections, a few MB each. */
const MAX_BUFFERED_TOKENS = 200_000

describe('a client that does not read', () => {
  it('stops the worker, and is disconnected after the stall timeout', async () => {
    await start({ config: { server: { clientStallMs: 500 } } })
    const before = process.memoryUsage().arrayBuffers
    sendUnread({ max_tokens: ENDLESS })
    await cluster.decodes[0]!.waitForActive(1)
    const sent = await stuck()
    expect(sent).toBeLessThan(MAX_BUFFERED_TOKENS)
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(32 << 20)
    await cluster.decodes[0]!.waitForAborts(1)
    await tickets.settled()
    expect(cluster.decodes[0]!.counters.tokensSent).toBeLessThan(MAX_BUFFERED_TOKENS)
    expect(tickets.dispatches.at(-1)!.ends).toEqual(['ignored'])
    expect(await outcomes('client_stalled')).toBe(1)
  })

  it('and then does gets every event, and the worker is not blamed for the pause', async () => {
    clock = ManualClock.install()
    await start({ config: { timeouts: { betweenTokensMs: 300 } } })
    cluster.decodes[0]!.failNext({
      kind: 'garbage',
      bytes: `${largeStream(4_000)}e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n`,
    })
    const client = sendUnread({})
    await cluster.decodes[0]!.waitFor(({ faulted }) => faulted === 1)
    // Another stream stalls for longer than the limit between tokens, so that time passes for the first one
    // too.
    cluster.decodes[0]!.failNext({ kind: 'hang', after: 'tokens', tokens: 1 })
    const stalled = await cluster.post('/v1/completions', body())
    expect((await clock.during(eventsOf(stalled), 50)).at(-1)).toContain('ELDR_STREAM_STALLED')
    expect(await metric(cluster, 'eldr_requests_total', { outcome: 'ok', route: 'completions' })).toBe(0)
    const { events, end } = await client.read()
    expect(end).toContain('data: [DONE]\n\n')
    // An event that is split between two reads is not counted.
    expect(events).toBeGreaterThan(0.95 * 4_000)
    await tickets.settled()
    expect(await outcomes('ok')).toBe(1)
  })

  it('and then leaves ends the request at the worker', async () => {
    await start()
    const client = sendUnread({ max_tokens: ENDLESS })
    await stuck()
    client.socket.destroy()
    await cluster.decodes[0]!.waitForAborts(1)
    await tickets.settled()
    expect(await outcomes('client_gone')).toBe(1)
  })

  it('gets an error event if the worker restarted meanwhile', async () => {
    await start()
    const client = sendUnread({ max_tokens: ENDLESS })
    await stuck()
    await cluster.decodes[0]!.restart()
    const { end } = await client.read()
    expect(end).toContain('ELDR_STREAM_BROKEN')
    expect(end).not.toContain('[DONE]')
    await tickets.settled()
    expect(await outcomes('broken')).toBe(1)
  })

  it('gets an error event if the request timed out meanwhile', async () => {
    clock = ManualClock.install()
    await start({ config: { timeouts: { requestMs: 1_000 } } })
    const client = sendUnread({ max_tokens: ENDLESS })
    await stuck()
    expect(cluster.decodes[0]!.counters).toMatchObject({ active: 1, aborted: 0 })
    await clock.during(cluster.decodes[0]!.waitForAborts(1), 50)
    const { end } = await client.read()
    expect(end).toContain('ELDR_REQUEST_TIMEOUT')
    expect(end).not.toContain('[DONE]')
    await tickets.settled()
    expect(await outcomes('timeout')).toBe(1)
  })

  it('and asked for several choices stops all of them, without a warning about listeners', async () => {
    const warnings: string[] = []
    const warned = (warning: Error) => warnings.push(warning.name)
    process.on('warning', warned)
    await start({ config: { server: { clientStallMs: 500 } } })
    sendUnread({ n: 16, max_tokens: ENDLESS })
    await stuck()
    await cluster.decodes[0]!.waitForAborts(16)
    await tickets.settled()
    expect(cluster.decodes[0]!.counters.tokensSent).toBeLessThan(16 * MAX_BUFFERED_TOKENS)
    expect(await outcomes('client_stalled')).toBe(1)
    expect(warnings).toEqual([])
    process.off('warning', warned)
  })

  it('is disconnected also from a response that the gateway has received in full', async () => {
    await start({ config: { server: { clientStallMs: 300 } } })
    const large = JSON.stringify({ choices: [], text: 'a'.repeat(32 << 20) })
    cluster.decodes[0]!.failNext({ kind: 'answer', body: large })
    const client = sendUnread({ stream: false })
    await eventually(async () => (await outcomes('ok')) === 1)
    await tickets.settled()
    // Two streams stall one after the other, so that the stall timeout has passed for the first response too.
    for (let stalled = 1; stalled <= 2; stalled++) {
      cluster.decodes[0]!.failNext({ kind: 'garbage', bytes: largeStream(4_000) })
      sendUnread({})
      await eventually(async () => (await outcomes('client_stalled')) === stalled)
    }
    expect((await client.read()).end).not.toMatch(/"\}$/)
  })

  it('gets all of a response that was complete before the gateway stopped', async () => {
    await start()
    const large = JSON.stringify({ choices: [], text: 'a'.repeat(32 << 20) })
    cluster.decodes[0]!.failNext({ kind: 'answer', body: large })
    const client = sendUnread({ stream: false })
    await eventually(async () => (await outcomes('ok')) === 1)
    const stopped = cluster.gateway.stop()
    expect((await client.read()).end).toMatch(/a"\}$/)
    await stopped
  })

  it('and then does gets every event of a worker that closes its connection', async () => {
    await start()
    const bytes = `${largeStream(4_000, 'connection: close\r\n')}e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n`
    cluster.decodes[0]!.failNext({ kind: 'garbage', bytes })
    const client = sendUnread({})
    await cluster.decodes[0]!.waitFor(({ faulted }) => faulted === 1)
    expect((await client.read()).end).toContain('data: [DONE]\n\n')
    await tickets.settled()
    expect(await outcomes('ok')).toBe(1)
  })
})

describe('a client that reads slowly', () => {
  it('stays connected, however long it takes', async () => {
    await start({ config: { server: { clientStallMs: 4_000 } } })
    // Another client reads nothing. It is disconnected when the stall timeout has expired.
    sendUnread({ max_tokens: ENDLESS })
    await stuck()
    const other = cluster.decodes[0]!.waitForAborts(1).then(() => 'disconnected' as const)
    const large = JSON.stringify({ choices: [], text: 'a'.repeat(32 << 20) })
    cluster.decodes[0]!.failNext({ kind: 'answer', body: large })
    const { socket } = sendUnread({ stream: false })
    await eventually(async () => (await outcomes('ok')) === 1)
    // At most 32 KB in 8 ms, which takes at least 8 s: the other client is disconnected long before the end.
    const read = () => (socket.read(Math.min(32 << 10, socket.readableLength)) as Buffer | null)?.length ?? 0
    let bytes = 0
    while ((await Promise.race([other, sleep(8)])) !== 'disconnected') bytes += read()
    expect(bytes).toBeGreaterThan(0)
    expect(bytes).toBeLessThan(large.length)
    expect(await outcomes('client_stalled')).toBe(1)
    socket.on('data', part => (bytes += part.length)).resume()
    await once(socket, 'close')
    expect(bytes).toBeGreaterThan(large.length)
    await tickets.settled()
    expect(await outcomes('ok')).toBe(1)
  })
})

/** A stream of events of 10 KB each, without its end. */
function largeStream(events: number, headers = ''): string {
  const event = `data: ${JSON.stringify({ choices: [{ text: 'a'.repeat(10_000) }] })}\n\n`
  const head = `HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n${headers}\r\n`
  return head + `${event.length.toString(16)}\r\n${event}\r\n`.repeat(events)
}
