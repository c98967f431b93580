/** `eldr serve --processes`: real processes that are killed while streams run. */
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
/** On a connection of its own, so that relays share them. */
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

/** The last that a client got of a stream, or that its connection broke. */
function howEnded(events: readonly string[] | Error): string {
  if (events instanceof Error) return 'broke'
  const last = events.at(-1) ?? 'nothing'
  return last.startsWith('{"error"') ? (JSON.parse(last) as { error: { code: string } }).error.code : last
}

interface Running {
  readonly relay: string
  readonly events: Promise<string[] | Error>
}

/** So many streams that have begun, and which relay has each. */
async function streams(count: number, maxTokens: number): Promise<Running[]> {
  const relayOf = async (id: string) => {
    const line = cluster.process
      .said()
      .split('\n')
      .find(text => text.includes(`"${id}"`) && text.includes('"leg"'))
    return line === undefined ? undefined : (JSON.parse(line) as { process: string }).process
  }
  return Promise.all(
    Array.from({ length: count }, async (_, n) => {
      const id = `stream-${n}-${performance.now()}`
      const response = await cluster.post(
        '/v1/completions',
        { ...BODY, max_tokens: maxTokens },
        { headers: { connection: 'close', 'x-request-id': id } },
      )
      expect(response.status).toBe(200)
      const events = eventsOf(response).catch((error: unknown) => error as Error)
      // The prefill leg's line names the relay.
      const relay = await polled(
        async () => (await new Promise(resolve => setTimeout(resolve, 5)), relayOf(id)),
        name => name !== undefined,
        'the relay of a stream',
      )
      return { relay: relay!, events }
    }),
  )
}

const SLOW = { decodeOptions: { gapMs: 10 }, config: { observe: { logLevel: 'debug' } } } as const

describe('two relays', () => {
  it('share the clients, and one owner counts for both', async () => {
    await start({ config: { observe: { logLevel: 'debug' } } })
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
      '60 lines',
    )
    for (const relay of ['relay-1', 'relay-2'])
      expect(lines().filter(line => line.includes(`"${relay}"`)).length).toBeGreaterThan(20)
    expect(await metric('eldr_requests_total', { route: 'completions', outcome: 'ok' })).toBe(60)
    expect(await metric('eldr_decisions_total')).toBe(60)
    expect(await metric('eldr_tokens_total', { kind: 'output' })).toBe(480)
    expect(await metric('eldr_time_to_first_token_seconds_count')).toBe(60)
    expect(await metric('eldr_tickets')).toBe(0)
    expect(await metric('eldr_ticket_double_releases_total')).toBe(0)
    // Stories lie where the requests were, and are found from anywhere.
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

  it('have one limit together', async () => {
    await start({
      decodeOptions: { gapMs: 10 },
      config: {
        limits: { maxConcurrentRequests: 3, queueSize: 1, queueTimeoutMs: 20_000 },
        observe: { logLevel: 'debug' },
      },
    })
    const running = await streams(3, 60)
    const waits = ask({ max_tokens: 2 })
    await polled(
      async () => metric('eldr_queue_length'),
      queued => queued === 1,
      'one that waits',
    )
    for (let n = 0; n < 8; n++) {
      const refused = await ask()
      expect([refused.status, refused.headers.get('x-eldr-error-code')]).toEqual([429, 'ELDR_OVERLOADED'])
      expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0)
    }
    for (const { events } of running) expect(done((await events) as string[])).toBe(true)
    expect(done(await eventsOf(await waits))).toBe(true)
    // Room again, for both of them.
    for (let n = 0; n < 8; n++) expect(done(await eventsOf(await ask({ max_tokens: 2 })))).toBe(true)
    await cluster.idle()
    expect(await metric('eldr_running_requests')).toBe(0)
  })
})

describe('a relay that is killed', () => {
  it('takes its own streams with it and nothing else; its load is given back within a second', async () => {
    await start(SLOW)
    const running = await streams(16, 120)
    const before = await metric('eldr_requests_total')
    const pid = cluster.pidOf('relay-1')
    const lives = running.filter(({ relay }) => relay !== 'relay-1').length
    expect([lives > 0, lives < 16]).toEqual([true, true])
    const killedMs = performance.now()
    process.kill(pid, 'SIGKILL')
    await polled(cluster.inflight, count => count <= lives, 'its load to be given back')
    expect(performance.now() - killedMs).toBeLessThan(1_000)
    // Its connections break amid the stream: clients that wait for [DONE] know.
    for (const { relay, events } of running)
      expect(howEnded(await events)).toBe(relay === 'relay-1' ? 'broke' : '[DONE]')
    await cluster.replaced('relay-1', pid)
    await cluster.idle()
    expect(await metric('eldr_requests_total')).toBeGreaterThanOrEqual(before + lives)
    // Whoever had been ready did not fail to begin, the second time too.
    const second = cluster.pidOf('relay-1')
    process.kill(second, 'SIGKILL')
    await cluster.replaced('relay-1', second)
    expect(cluster.process.said()).not.toContain('cannot begin')
    expect(await metric('eldr_running_requests')).toBe(0)
    const all = await Promise.all(Array.from({ length: 20 }, () => ask({ max_tokens: 2 }).then(eventsOf)))
    expect(all.filter(done)).toHaveLength(20)
    await cluster.idle()
  })

  it('by a fault of its own ends its streams with an error event', async () => {
    const before = process.env['NODE_OPTIONS']
    process.env['NODE_OPTIONS'] = `--import=${new URL('./throw-on-hangup.mjs', import.meta.url).href}`
    await start(SLOW).finally(() => {
      if (before === undefined) delete process.env['NODE_OPTIONS']
      else process.env['NODE_OPTIONS'] = before
    })
    const running = await streams(12, 120)
    const pid = cluster.pidOf('relay-2')
    expect(running.filter(({ relay }) => relay === 'relay-2').length).toBeGreaterThan(0)
    process.kill(pid, 'SIGHUP')
    for (const { relay, events } of running)
      expect(howEnded(await events)).toBe(relay === 'relay-2' ? 'ELDR_INTERNAL' : '[DONE]')
    await cluster.replaced('relay-2', pid)
    expect(cluster.process.said()).toContain('a fault that a test made')
    await cluster.idle()
  })
})

describe('a relay that is told to end', () => {
  it('lets its streams end and gets no new ones, and another takes its place', async () => {
    await start(SLOW)
    const running = await streams(8, 120)
    const pid = cluster.pidOf('relay-1')
    process.kill(pid, 'SIGTERM')
    const all = await Promise.all(Array.from({ length: 20 }, () => ask({ max_tokens: 2 })))
    expect(new Set(all.map(({ status }) => status))).toEqual(new Set([200]))
    for (const response of all) expect(done(await eventsOf(response))).toBe(true)
    for (const { events } of running) expect(done((await events) as string[])).toBe(true)
    await cluster.replaced('relay-1', pid)
    await cluster.idle()
  })
})

describe('an owner that is killed', () => {
  it('is replaced, and nobody notices: streams go on, requests wait, what was changed stays changed', async () => {
    await start(SLOW)
    const first = (
      await cluster.get<{ workers: { id: string; role: string }[] }>('/eldr/workers')
    ).workers.find(({ role }) => role === 'decode')
    expect((await cluster.post('/eldr/policy', { policy: 'power_of_two' }, { method: 'PUT' })).status).toBe(
      200,
    )
    expect((await cluster.post(`/eldr/workers/${first!.id}/drain`, {})).status).toBe(200)
    const running = await streams(12, 120)
    const counted = await metric('eldr_decisions_total')
    const pid = cluster.pidOf('owner')
    process.kill(pid, 'SIGKILL')
    // While there is none.
    const meanwhile = await Promise.all(
      Array.from({ length: 12 }, async () => eventsOf(await ask({ max_tokens: 3 }))),
    )
    expect(meanwhile.filter(done)).toHaveLength(12)
    await cluster.replaced('owner', pid)
    expect(await cluster.inflight()).toBeGreaterThan(0)
    const { routing } = await cluster.get<{ routing: { policy: string } }>('/eldr/config')
    expect(routing.policy).toBe('power_of_two')
    const { workers } = await cluster.get<{ workers: { id: string; state: string }[] }>('/eldr/workers')
    expect(workers.find(({ id }) => id === first!.id)!.state).toBe('draining')
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
  it('that is told to stop lets streams end, and leaves nothing behind', async () => {
    await start(SLOW)
    const all = pids()
    const running = await streams(8, 60)
    const stopped = cluster.process.stop()
    await polled(
      async () => (await fetch(`${cluster.url}/ready`)).status,
      status => status === 503,
      'draining',
    )
    const refused = await ask()
    expect([refused.status, refused.headers.get('x-eldr-error-code')]).toEqual([503, 'ELDR_DRAINING'])
    for (const { events } of running) expect(done((await events) as string[])).toBe(true)
    expect(await stopped).toBe(0)
    expect(all.filter(runs)).toEqual([])
  })

  it('that is killed takes all its processes with it', async () => {
    await start(SLOW)
    const all = pids()
    await streams(4, 120)
    await cluster.process.kill()
    await ended(all)
    expect(all.filter(runs)).toEqual([])
  })

  it('says what is wrong when its processes cannot begin', async () => {
    await start()
    const flags = ['--processes', '2', '--prefill', 'http://127.0.0.1:9', '--decode', 'http://127.0.0.1:10']
    await expect(startGatewayProcess([...flags, '--port', new URL(cluster.url).port])).rejects.toThrow(
      /ended with 1.*ELDR_PORT_TAKEN/s,
    )
    await expect(startGatewayProcess([...flags, '--artifact', 'no-such-file.safetensors'])).rejects.toThrow(
      /ended with 1(?!.*started anew).*ELDR_FILE_UNREADABLE/s,
    )
  })
})

/** The first event of the dashboard. */
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
