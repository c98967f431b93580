/** `eldr serve --processes`: real processes, killed while streams run. */
import { afterEach, describe, expect, it } from 'vitest'
import { readSamples, sumByName } from '../../src/cluster/metrics-text.ts'
import { killAll, polled, startGatewayProcess } from '../worker/processes.ts'
import { eventsOf } from './cluster.ts'
import { ended, type ProcessCluster, runs, startProcessCluster } from './process-cluster.ts'

let cluster: ProcessCluster
afterEach(async () => {
  await cluster.stop()
  await killAll()
})

const start = async (options: Parameters<typeof startProcessCluster>[0] = {}) =>
  void (cluster = await startProcessCluster(options))
const NAMES = ['owner', 'relay-1', 'relay-2']
const pids = () => NAMES.map(name => cluster.pidOf(name))
const BODY = { prompt: 'Once upon a time there was', stream: true }
/** Each request has its own connection, so that both relays get some. */
const ask = (more: object = {}) =>
  cluster.post('/v1/completions', { ...BODY, ...more }, { headers: { connection: 'close' } })
const done = (events: readonly string[]) => events.at(-1) === '[DONE]'
const metric = async (name: string, labels: Record<string, string> = {}) => {
  const samples = readSamples(await (await fetch(`${cluster.url}/metrics`)).text(), new Set([name]))
  const wanted = samples.filter(sample =>
    Object.entries(labels).every(([label, value]) => sample.labels[label] === value),
  )
  return sumByName(wanted).get(name) ?? NaN
}

/** The last event of a stream, its error code, or 'broke' if the connection broke. */
function howEnded(events: readonly string[] | Error): string {
  if (events instanceof Error) return 'broke'
  const last = events.at(-1) ?? 'nothing'
  return last.startsWith('{"error"') ? (JSON.parse(last) as { error: { code: string } }).error.code : last
}

interface RunningStream {
  readonly relay: string
  readonly events: Promise<string[] | Error>
}

/**
 * Streams that have begun and stop after two tokens until they are released. Requests after them are not
 * held.
 */
async function heldStreams(count: number) {
  const { holdNoMore, release } = cluster.holdStreams()
  const relayOf = async (id: string) => {
    const line = cluster.process
      .said()
      .split('\n')
      .find(text => text.includes(`"${id}"`) && text.includes('"leg"'))
    return line === undefined ? undefined : (JSON.parse(line) as { process: string }).process
  }
  const running = await Promise.all(
    Array.from({ length: count }, async (_, n): Promise<RunningStream> => {
      const id = `stream-${n}-${performance.now()}`
      const response = await cluster.post(
        '/v1/completions',
        { ...BODY, max_tokens: 6 },
        { headers: { connection: 'close', 'x-request-id': id } },
      )
      expect(response.status).toBe(200)
      const events = eventsOf(response).catch((error: unknown) => error as Error)
      // The log line of the prefill leg names the relay.
      const relay = await polled(
        async () => (await new Promise(resolve => setTimeout(resolve, 5)), relayOf(id)),
        name => name !== undefined,
        'the relay of a stream',
      )
      return { relay: relay!, events }
    }),
  )
  holdNoMore()
  return { running, release }
}

const DEBUG = { config: { observe: { logLevel: 'debug' } } } as const

describe('two relays', () => {
  it('share the clients, and the owner counts for both', async () => {
    await start(DEBUG)
    const all = await Promise.all(Array.from({ length: 60 }, () => ask({ max_tokens: 8 }).then(eventsOf)))
    expect(all.filter(done)).toHaveLength(60)
    await cluster.idle()
    const lines = () =>
      cluster.process
        .said()
        .split('\n')
        .filter(line => line.includes('"msg":"request"'))
    await polled(
      async () => (await new Promise(resolve => setTimeout(resolve, 5)), lines().length),
      count => count === 60,
      '60 log lines',
    )
    for (const relay of ['relay-1', 'relay-2'])
      expect(lines().filter(line => line.includes(`"${relay}"`)).length).toBeGreaterThan(20)
    expect(await metric('eldr_requests_total', { route: 'completions', outcome: 'ok' })).toBe(60)
    expect(await metric('eldr_decisions_total')).toBe(60)
    expect(await metric('eldr_tokens_total', { kind: 'output' })).toBe(480)
    expect(await metric('eldr_time_to_first_token_seconds_count')).toBe(60)
    expect(await metric('eldr_tickets')).toBe(0)
    expect(await metric('eldr_ticket_double_releases_total')).toBe(0)
    // The relay that served a request keeps its story; any relay can show it.
    const { decisions } = await cluster.get<{ decisions: { request: string }[] }>('/eldr/decisions?limit=5')
    for (const { request } of decisions) {
      const { story } = await cluster.get<{ story: { outcome: string; legs: unknown[] } }>(
        `/eldr/requests/${request}`,
      )
      expect([story.outcome, story.legs.length]).toEqual(['ok', 2])
    }
    const { pace } = await hello()
    expect(pace.reduce((sum, { tpot }) => sum + (tpot?.count ?? 0), 0)).toBe(60)
  })

  it('report the times of their streams, from which the owner learns the cost of a step', async () => {
    await start({ decodeOptions: { gapMs: 2 }, config: { routing: { policy: 'union' } } })
    expect(await metric('eldr_step_cost_streams')).toBeNaN()
    for (let n = 0; n < 5; n++)
      await Promise.all(Array.from({ length: 8 }, async () => (await ask({ max_tokens: 10 })).text()))
    await cluster.idle()
    // The first 15 set the level.
    expect(await metric('eldr_step_cost_streams')).toBe(25)
    expect(await metric('eldr_step_cost_base_seconds')).toBeGreaterThan(0)
  })

  it('share one concurrency limit', async () => {
    await start({
      config: {
        limits: { maxConcurrentRequests: 3, queueSize: 1, queueTimeoutMs: 600_000 },
        observe: { logLevel: 'debug' },
      },
    })
    const { running, release } = await heldStreams(3)
    const queued = ask({ max_tokens: 2 })
    await polled(
      async () => metric('eldr_queue_length'),
      length => length === 1,
      'one queued request',
    )
    for (let n = 0; n < 8; n++) {
      const refused = await ask()
      expect([refused.status, refused.headers.get('x-eldr-error-code')]).toEqual([429, 'ELDR_OVERLOADED'])
      expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0)
    }
    release()
    for (const { events } of running) expect(done((await events) as string[])).toBe(true)
    expect(done(await eventsOf(await queued))).toBe(true)
    // Both relays have capacity again.
    for (let n = 0; n < 8; n++) expect(done(await eventsOf(await ask({ max_tokens: 2 })))).toBe(true)
    await cluster.idle()
    expect(await metric('eldr_running_requests')).toBe(0)
  })
})

describe('a killed relay', () => {
  it('breaks only its own streams, and its load is released while the other streams run', async () => {
    await start(DEBUG)
    const { running, release } = await heldStreams(16)
    const before = await metric('eldr_requests_total')
    const pid = cluster.pidOf('relay-1')
    const survivors = running.filter(({ relay }) => relay !== 'relay-1').length
    expect([survivors > 0, survivors < 16]).toEqual([true, true])
    process.kill(pid, 'SIGKILL')
    // The other streams are held, so only the kill can have lowered the count.
    await polled(cluster.inflight, count => count === survivors, 'its load to be released')
    release()
    // A connection that breaks before [DONE] tells the client that the stream is incomplete.
    for (const { relay, events } of running)
      expect(howEnded(await events)).toBe(relay === 'relay-1' ? 'broke' : '[DONE]')
    await cluster.replaced('relay-1', pid)
    await cluster.idle()
    expect(await metric('eldr_requests_total')).toBeGreaterThanOrEqual(before + survivors)
    // A relay that was ready before it died did not fail to start, also the second time.
    const second = cluster.pidOf('relay-1')
    process.kill(second, 'SIGKILL')
    await cluster.replaced('relay-1', second)
    expect(cluster.process.said()).not.toContain('cannot begin')
    expect(await metric('eldr_running_requests')).toBe(0)
    const all = await Promise.all(Array.from({ length: 20 }, () => ask({ max_tokens: 2 }).then(eventsOf)))
    expect(all.filter(done)).toHaveLength(20)
    await cluster.idle()
  })

  it('that crashed on an exception ends its streams with an error event', async () => {
    const before = process.env['NODE_OPTIONS']
    process.env['NODE_OPTIONS'] = `--import=${new URL('./throw-on-hangup.mjs', import.meta.url).href}`
    await start(DEBUG).finally(() => {
      if (before === undefined) delete process.env['NODE_OPTIONS']
      else process.env['NODE_OPTIONS'] = before
    })
    const { running, release } = await heldStreams(12)
    const pid = cluster.pidOf('relay-2')
    const crashed = running.filter(({ relay }) => relay === 'relay-2')
    const others = running.filter(({ relay }) => relay !== 'relay-2')
    expect(crashed.length).toBeGreaterThan(0)
    process.kill(pid, 'SIGHUP')
    for (const { events } of crashed) expect(howEnded(await events)).toBe('ELDR_INTERNAL')
    release()
    for (const { events } of others) expect(howEnded(await events)).toBe('[DONE]')
    await cluster.replaced('relay-2', pid)
    expect(cluster.process.said()).toContain('a fault that a test made')
    await cluster.idle()
  })
})

describe('a relay that gets SIGTERM', () => {
  it('finishes its streams, gets no new ones, and is replaced', async () => {
    await start(DEBUG)
    const { running, release } = await heldStreams(8)
    const pid = cluster.pidOf('relay-1')
    process.kill(pid, 'SIGTERM')
    const all = await Promise.all(Array.from({ length: 20 }, () => ask({ max_tokens: 2 })))
    expect(new Set(all.map(({ status }) => status))).toEqual(new Set([200]))
    for (const response of all) expect(done(await eventsOf(response))).toBe(true)
    release()
    for (const { events } of running) expect(done((await events) as string[])).toBe(true)
    await cluster.replaced('relay-1', pid)
    await cluster.idle()
  })
})

describe('a killed owner', () => {
  it('is replaced without clients noticing: streams continue, requests wait, admin changes persist', async () => {
    await start(DEBUG)
    const first = (
      await cluster.get<{ workers: { id: string; role: string }[] }>('/eldr/workers')
    ).workers.find(({ role }) => role === 'decode')
    expect((await cluster.post('/eldr/policy', { policy: 'power_of_two' }, { method: 'PUT' })).status).toBe(
      200,
    )
    expect((await cluster.post(`/eldr/workers/${first!.id}/drain`, {})).status).toBe(200)
    const { running, release } = await heldStreams(12)
    const counted = await metric('eldr_decisions_total')
    const pid = cluster.pidOf('owner')
    process.kill(pid, 'SIGKILL')
    // These arrive while there is no owner.
    const meanwhile = await Promise.all(
      Array.from({ length: 12 }, async () => eventsOf(await ask({ max_tokens: 3 }))),
    )
    expect(meanwhile.filter(done)).toHaveLength(12)
    await cluster.replaced('owner', pid)
    // The new owner counts the 12 held streams and nothing else.
    await polled(cluster.inflight, count => count === 12, 'the held streams alone')
    const { routing } = await cluster.get<{ routing: { policy: string } }>('/eldr/config')
    expect(routing.policy).toBe('power_of_two')
    const { workers } = await cluster.get<{ workers: { id: string; state: string }[] }>('/eldr/workers')
    expect(workers.find(({ id }) => id === first!.id)!.state).toBe('draining')
    release()
    for (const { events } of running) expect(done((await events) as string[])).toBe(true)
    await cluster.idle()
    expect([
      await metric('eldr_tickets'),
      await metric('eldr_running_requests'),
      await metric('eldr_ticket_double_releases_total'),
    ]).toEqual([0, 0, 0])
    expect(await metric('eldr_requests_total', { route: 'completions', outcome: 'ok' })).toBe(24)
    expect(counted).toBe(12)
  })
})

describe('the supervisor', () => {
  it('finishes streams on SIGTERM and leaves no process behind', async () => {
    await start(DEBUG)
    const all = pids()
    const { running, release } = await heldStreams(8)
    const stopped = cluster.process.stop()
    await polled(
      async () => (await fetch(`${cluster.url}/ready`)).status,
      status => status === 503,
      'draining',
    )
    const refused = await ask()
    expect([refused.status, refused.headers.get('x-eldr-error-code')]).toEqual([503, 'ELDR_DRAINING'])
    release()
    for (const { events } of running) expect(done((await events) as string[])).toBe(true)
    expect(await stopped).toBe(0)
    expect(all.filter(runs)).toEqual([])
  })

  it('takes all its processes with it when it is killed', async () => {
    await start(DEBUG)
    const all = pids()
    await heldStreams(4)
    await cluster.process.kill()
    await ended(all)
    expect(all.filter(runs)).toEqual([])
  })

  it('reports why its processes cannot start', async () => {
    await start()
    const flags = ['--processes', '2', '--prefill', 'http://127.0.0.1:9', '--decode', 'http://127.0.0.1:10']
    await expect(startGatewayProcess([...flags, '--port', new URL(cluster.url).port])).rejects.toThrow(
      /ended with 1.*ELDR_PORT_TAKEN/s,
    )
    await expect(startGatewayProcess([...flags, '--artifact', 'no-such-file.safetensors'])).rejects.toThrow(
      /ended with 1(?!.*"pauseMs").*ELDR_FILE_UNREADABLE/s,
    )
  })
})

/** The first event of the dashboard's stream. */
async function hello(): Promise<{ pace: { tpot?: { count: number } }[] }> {
  const stop = new AbortController()
  const response = await fetch(`${cluster.url}/eldr/pulse`, { signal: stop.signal })
  let text = ''
  for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) {
    text += chunk
    const data = /event: hello\ndata: (.*)\n\n/.exec(text)?.[1]
    if (data === undefined) continue
    stop.abort()
    return JSON.parse(data) as { pace: { tpot?: { count: number } }[] }
  }
  throw new Error(`no hello: ${text}`)
}
