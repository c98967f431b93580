/** A new process takes over the port while the old one finishes its streams: no connection breaks. */
import { readFileSync } from 'node:fs'
import { connect as tlsConnect } from 'node:tls'
import { afterEach, describe, expect, it } from 'vitest'
import { readSamples, sumByName } from '../../src/cluster/metrics-text.ts'
import { eventsOf } from '../gateway/cluster.ts'
import { ended, type ProcessCluster, runs, startProcessCluster } from '../gateway/process-cluster.ts'
import { eldrReplace } from '../gateway/replace-command.ts'
import { steadyLoad, streamOnce } from '../gateway/steady-load.ts'
import { HAS_OPENSSL, makeCertificates } from '../gateway/tls-files.ts'
import { killAll, polled } from '../worker/processes.ts'

let cluster: ProcessCluster | undefined
afterEach(async () => {
  await cluster?.stop()
  cluster = undefined
  await killAll()
})

const start = async (options: Parameters<typeof startProcessCluster>[0] = {}) =>
  (cluster = await startProcessCluster(options))
const CLOSE = { headers: { connection: 'close' } }
const stream = ({ post }: ProcessCluster, tokens = 3) =>
  post('/v1/completions', { prompt: 'Once', stream: true, max_tokens: tokens }, CLOSE)
const isDone = async (response: Response) => (await eventsOf(response)).at(-1) === '[DONE]'
async function replace({ post }: ProcessCluster): Promise<number> {
  const response = await post('/eldr/replace', {}, CLOSE)
  const body = (await response.json()) as { pid: number }
  expect([response.status, body]).toEqual([200, { pid: expect.any(Number), version: expect.any(String) }])
  return body.pid
}
/** Process ids of what the log calls ready, and of every successor. */
const childrenIn = ({ process: { said } }: ProcessCluster) =>
  [...said().matchAll(/"pid":(\d+),"msg":"(?:process is ready|starting a process)/g)].map(([, pid]) =>
    Number(pid),
  )
async function gauges({ url }: ProcessCluster): Promise<(number | undefined)[]> {
  const names = ['eldr_tickets', 'eldr_running_requests', 'eldr_ticket_double_releases_total']
  const text = await (await fetch(`${url}/metrics`, CLOSE)).text()
  const sums = sumByName(readSamples(text, new Set(names)))
  return names.map(name => sums.get(name))
}
/** Resolves when the log has this line so many times. */
const logged = ({ process: { said } }: ProcessCluster, text: string, times: number) =>
  polled(
    async () => (await new Promise(resolve => setTimeout(resolve, 10)), said().split(text).length - 1),
    count => count >= times,
    text,
  )
const LEFT = 'has ended its last request'

describe.each([1, 2])('a gateway of %i process(es)', processes => {
  it('is replaced twice under 200 streams and 100 new requests per second: none is refused or broken', async () => {
    // The held streams do not count as stalled on a slow machine.
    const here = await start({ processes, config: { timeouts: { betweenTokensMs: 600_000 } } })
    const { holdNoMore, release } = here.holdStreams()
    const held = await Promise.all(Array.from({ length: 200 }, () => stream(here, 6)))
    holdNoMore()
    const load = steadyLoad(here.url, { perSecond: 100 })
    const past = async (count: number) =>
      polled(
        async () => (await new Promise(resolve => setTimeout(resolve, 20)), load.done),
        done => done >= count,
        `${count} responses`,
      )
    await past(50)
    const first = await replace(here)
    await past(load.done + 100)
    // The new process counts the streams of the old one.
    expect(await here.inflight()).toBeGreaterThanOrEqual(200)
    const second = await replace(here)
    await past(load.done + 100)
    expect(await here.inflight()).toBeGreaterThanOrEqual(200)
    expect([runs(first), runs(second)]).toEqual([expect.any(Boolean), true])
    release()
    expect(await Promise.all(held.map(isDone))).toEqual(held.map(() => true))
    const { sent, failures } = await load.stop()
    expect(failures).toEqual([])
    console.log(
      `${processes} process(es): ${sent} requests and 200 streams over two replacements, 0 failures`,
    )
    await logged(here, LEFT, 2)
    await ended([first])
    await here.idle()
    expect(await gauges(here)).toEqual([0, 0, 0])
    expect(await here.process.stop()).toBe(0)
    await ended(childrenIn(here))
  })

  it('keeps admin changes, except for settings that the new configuration changes', async () => {
    const here = await start({ processes, decode: 3 })
    const send = async (method: string, path: string, body?: unknown) => {
      const init = { method, body: body && JSON.stringify(body), ...CLOSE }
      expect((await fetch(`${here.url}${path}`, init as RequestInit)).status).toBe(200)
    }
    const [drained, removed] = here.decodes.map(({ url }) => encodeURIComponent(url.slice('http://'.length)))
    await send('POST', `/eldr/workers/${drained}/drain`)
    await send('DELETE', `/eldr/workers/${removed}`)
    await send('PUT', '/eldr/policy', { policy: 'jsq', tau: 0.3 })
    await send('PUT', '/eldr/log-level', { level: 'debug' })
    const state = async () => {
      const { workers } = await here.get<{ workers: { id: string; state: string; index: number }[] }>(
        '/eldr/workers',
      )
      const { routing } = await here.get<{ routing: { policy: string; tau: number } }>('/eldr/config')
      const { level } = await here.get<{ level: string }>('/eldr/log-level')
      const all = workers.map(({ id, state: of, index }) => `${id} ${of} ${index}`)
      return { workers: all.toSorted(), policy: routing.policy, tau: routing.tau, level }
    }
    const before = await polled(state, ({ workers }) => workers.length === 4, 'the worker to be gone')
    expect(before).toMatchObject({ policy: 'jsq', tau: 0.3, level: 'debug' })
    await replace(here)
    expect(await state()).toEqual(before)
    expect(await isDone(await stream(here))).toBe(true)
    here.configure({ routing: { policy: 'random' } })
    await replace(here)
    expect(await state()).toEqual({ ...before, policy: 'random' })
  })

  it('continues to serve if the new configuration is invalid, and says why', async () => {
    const here = await start({ processes })
    here.configure({ routing: { policy: 'no such policy' } })
    const response = await here.post('/eldr/replace', {}, CLOSE)
    const { error } = (await response.json()) as { error: { code: string; message: string } }
    expect([response.status, error.code]).toEqual([500, 'ELDR_REPLACE_FAILED'])
    expect(error.message).toMatch(/continues to serve.*routing\.policy/s)
    expect(await isDone(await stream(here))).toBe(true)
    // Admin changes are accepted again, and so is a valid configuration.
    const [worker] = here.decodes.map(({ url }) => encodeURIComponent(url.slice('http://'.length)))
    expect((await here.post(`/eldr/workers/${worker}/drain`, {}, CLOSE)).status).toBe(200)
    here.configure({})
    await replace(here)
    expect(await isDone(await stream(here))).toBe(true)
  })

  it('stops with all its processes on SIGTERM while streams run in the old one', async () => {
    const here = await start({ processes, config: { server: { shutdownGraceMs: 1_000 } } })
    const { holdNoMore } = here.holdStreams()
    const held = await stream(here, 6)
    holdNoMore()
    await replace(here)
    const stopped = here.process.stop()
    expect((await eventsOf(held)).join('')).toContain('ELDR_DRAINING')
    expect(await stopped).toBe(0)
    await ended(childrenIn(here))
  })
})

it('changes the number of processes, and back', async () => {
  const here = await start({ processes: 1 })
  const { holdNoMore, release } = here.holdStreams()
  const held = [await stream(here, 6)]
  for (const processes of [2, 1]) {
    here.configure({ server: { port: 0, processes } })
    await replace(here)
    held.push(await stream(here, 6))
    expect(await here.inflight()).toBe(held.length)
  }
  holdNoMore()
  release()
  expect(await Promise.all(held.map(isDone))).toEqual([true, true, true])
  await here.idle()
  expect(await gauges(here)).toEqual([0, 0, 0])
})

it('needs the admin token', async () => {
  const here = await start({ processes: 1, config: { server: { adminToken: 'the-token' } } })
  expect((await here.post('/eldr/replace', {}, CLOSE)).status).toBe(401)
  expect(here.process.said()).not.toContain('starting a process')
  const headers = { connection: 'close', authorization: 'Bearer the-token' }
  expect((await here.post('/eldr/replace', {}, { headers })).status).toBe(200)
})

it.runIf(HAS_OPENSSL)('serves a renewed certificate, and breaks no TLS connection', async () => {
  const pairs = makeCertificates('old', 'renewed')
  const ca = Buffer.concat([readFileSync(pairs.old.certFile), readFileSync(pairs.renewed.certFile)])
  const nameAt = (url: string) =>
    new Promise<string>((resolve, reject) => {
      const socket = tlsConnect({ host: '127.0.0.1', port: Number(new URL(url).port), ca }, () => {
        resolve(String(socket.getPeerCertificate().subject.CN))
        socket.destroy()
      }).once('error', reject)
    })
  const ready = async (url: string) => (await streamOnce(url, { ca })) === ''
  const here = await start({ processes: 1, ready, config: { server: { tls: pairs.old } } })
  expect(await nameAt(here.url)).toBe('old')
  const load = steadyLoad(here.url, { perSecond: 50, ca })
  await polled(
    async () => (await new Promise(resolve => setTimeout(resolve, 20)), load.done),
    done => done > 20,
    'load',
  )
  here.configure({ server: { port: 0, processes: 1, tls: pairs.renewed } })
  expect(await eldrReplace(here)).toMatchObject({ code: 0 })
  const done = load.done
  await polled(
    async () => (await new Promise(resolve => setTimeout(resolve, 20)), load.done),
    now => now > done + 50,
    'load',
  )
  expect((await load.stop()).failures).toEqual([])
  expect(await nameAt(here.url)).toBe('renewed')
  pairs.remove()
})
