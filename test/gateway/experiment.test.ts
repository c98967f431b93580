/** Switchback experiments on a gateway: slots, the lease, and everything that must restore the policy. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { temporaryFolder } from '../trace-support.ts'
import { polled, PROGRAM } from '../worker/processes.ts'
import { call, errorOf, smallArtifact } from './admin-support.ts'
import { startCluster } from './cluster.ts'
import { startProcessCluster } from './process-cluster.ts'

const folder = temporaryFolder()
let artifact = ''
beforeAll(async () => {
  artifact = (await smallArtifact(folder.path, 2)).path
})
afterAll(() => folder.remove())

interface Running {
  readonly url: string
  post(path: string, body: unknown): Promise<Response>
  stop(): Promise<void>
}
let cluster: Running
let stopLoad = async () => {}
afterEach(async () => {
  await stopLoad()
  stopLoad = async () => {}
  await cluster.stop()
})

const STREAM = { prompt: 'a b c d e f g h', max_tokens: 4, stream: true }
async function stream(): Promise<void> {
  const response = await cluster.post('/v1/completions', STREAM)
  expect(response.status).toBe(200)
  await response.text()
}
/** Streams one after the other until the test ends. */
function startLoad(clients = 3): void {
  const stopped = new AbortController()
  const each = async () => {
    while (!stopped.signal.aborted) await stream()
  }
  const all = Array.from({ length: clients }, each)
  stopLoad = async () => {
    stopped.abort()
    await Promise.all(all)
  }
}
const policy = async () => (await call(cluster, 'GET', '/eldr/config')).json.routing.policy
const view = async () => (await call(cluster, 'GET', '/eldr/experiment')).json
const start = (body: object) => call(cluster, 'POST', '/eldr/experiment', body)
const ended = () => polled(view, ({ running }) => !running, 'the end of the experiment')

const KINDS = [
  ['one process', startCluster],
  ['several processes', startProcessCluster],
] as const

describe.each(KINDS)('an experiment on a gateway of %s', (_, startGateway) => {
  it('switches slots, measures each one, and restores policy and τ', async () => {
    cluster = await startGateway({ config: { routing: { policy: 'eldr', tau: 0.3, artifact } } })
    expect(await view()).toEqual({ running: false, policy: 'eldr' })
    const started = await start({ policies: ['jsq', 'union', 'band'], leaseMs: 60_000 })
    expect(started.status).toBe(201)
    const { id } = started.json
    expect(started.json).toMatchObject({ running: true, slot: 0, policy: 'eldr', restores: 'eldr' })
    const path = `/eldr/experiment/${id}`
    const first = await call(cluster, 'PUT', path, { policy: 'jsq', washoutMs: 0 })
    expect(first.json).toMatchObject({ slot: 1, policy: 'jsq' })
    expect(first.json.finished).toBeUndefined()
    for (let n = 0; n < 5; n++) await stream()
    // The owner hears of the last stream after its client has read it.
    if (startGateway !== startCluster)
      await polled(
        () => reports('output'),
        count => count >= 20,
        'reports',
      )
    const second = await call(cluster, 'PUT', path, { policy: 'band', tau: 0.7, washoutMs: 3_600_000 })
    const { finished } = second.json
    expect(finished).toMatchObject({ slot: 1, policy: 'jsq', streams: 5 })
    expect(finished.seconds).toBeGreaterThan(0)
    expect(finished.ttftMs.p50).toBeGreaterThan(0)
    expect(finished.ttftMs.p99).toBeGreaterThanOrEqual(finished.ttftMs.p50)
    expect(finished.tpotMs.p50).toBeGreaterThanOrEqual(0)
    expect(finished.outputTokensPerSecond / finished.requestsPerSecond).toBeCloseTo(4)
    expect((await call(cluster, 'GET', '/eldr/config')).json.routing).toMatchObject({
      policy: 'band',
      tau: 0.7,
    })
    await stream()
    expect((await call(cluster, 'PUT', path)).json).toMatchObject({ slot: 2, policy: 'band' })
    const last = await call(cluster, 'DELETE', path)
    // Streams of the washout do not count.
    expect(last.json).toMatchObject({ running: false, policy: 'eldr', finished: { slot: 2, streams: 0 } })
    expect(last.json.finished.tpotMs).toEqual({ p50: null, p99: null })
    expect((await call(cluster, 'GET', '/eldr/config')).json.routing).toMatchObject({
      policy: 'eldr',
      tau: 0.3,
    })
    expect(errorOf(await call(cluster, 'DELETE', path))).toBe('404 ELDR_EXPERIMENT_UNKNOWN')
  })

  it('ends by itself when its lease expires', async () => {
    cluster = await startGateway({ config: { routing: { policy: 'round_robin' } } })
    const { json } = await start({ policies: ['jsq'], leaseMs: 1_000 })
    const slot = await call(cluster, 'PUT', `/eldr/experiment/${json.id}`, { policy: 'jsq' })
    expect(slot.json).toMatchObject({ running: true, policy: 'jsq' })
    await ended()
    expect(await policy()).toBe('round_robin')
    expect(errorOf(await call(cluster, 'PUT', `/eldr/experiment/${json.id}`))).toBe(
      '404 ELDR_EXPERIMENT_UNKNOWN',
    )
    expect((await call(cluster, 'PUT', '/eldr/policy', { policy: 'jsq' })).status).toBe(200)
  })

  it('is run by `eldr experiment`, which says what it found', async () => {
    cluster = await startGateway({ config: { routing: { policy: 'round_robin' } } })
    startLoad()
    const args = ['--policies', 'jsq,round_robin', '--slot', '0.6', '--washout', '0.1', '--slots', '8']
    const { code, out } = await experiment(...args, '--seed', '1', '--json')
    expect(code).toBe(0)
    const result = JSON.parse(out)
    expect(result.slots).toHaveLength(8)
    for (let block = 0; block < 8; block += 2)
      expect(
        result.slots
          .slice(block, block + 2)
          .map((slot: { policy: string }) => slot.policy)
          .toSorted(),
      ).toEqual(['jsq', 'round_robin'])
    for (const slot of result.slots) expect(slot.streams).toBeGreaterThan(0)
    const [{ effects, words }] = result.comparisons
    expect(effects.map(({ figure }: { figure: string }) => figure)).toContain('TPOT p50')
    expect(effects.map(({ blocks }: { blocks: number }) => blocks)).toEqual(Array(5).fill(4))
    expect(words).toMatch(/round_robin/)
    expect(result.cautions.join()).toContain('4 blocks')
    expect(await view()).toEqual({ running: false, policy: 'round_robin' })
  })

  it('reports complete blocks if it is stopped, and ends the experiment', async () => {
    cluster = await startGateway({ config: { routing: { policy: 'round_robin' } } })
    startLoad()
    const json = join(folder.path, `${Math.random()}.json`)
    const args = ['--slot', '0.5', '--washout', '0.1', '--slots', '400', '--json', json]
    const child = launch('--policies', 'jsq,jsq', ...args)
    await polled(view, ({ running, slot }) => running && slot >= 6, 'six slots')
    const gone = once(child, 'exit')
    child.kill('SIGINT')
    expect(await gone).toEqual([null, 'SIGINT'])
    const { comparisons, cautions, slots } = JSON.parse(await readFile(json, 'utf8'))
    expect(slots.length).toBeGreaterThanOrEqual(5)
    expect(comparisons).toMatchObject([{ base: 'jsq', policy: 'jsq#2' }])
    expect(comparisons[0].effects[0].blocks).toBe(Math.floor(slots.length / 2))
    expect(cautions[0]).toBe(`ended early, after ${slots.length} of 400 slots`)
    expect(await view()).toEqual({ running: false, policy: 'round_robin' })
  })

  it.each(['SIGKILL', 'SIGINT'] as const)('restores the policy when its client gets %s', async signal => {
    cluster = await startGateway({ config: { routing: { policy: 'round_robin' } } })
    const child = launch('--policies', 'jsq,union', '--slot', '60', '--washout', '1', '--lease', '1')
    await polled(view, ({ running, slot }) => running && slot === 1, 'the first slot')
    expect(['jsq', 'union']).toContain(await policy())
    const gone = once(child, 'exit')
    child.kill(signal)
    await gone
    // SIGINT: the command has ended it. SIGKILL: the lease expires.
    if (signal === 'SIGKILL') await ended()
    expect(await view()).toMatchObject({ running: false })
    expect(await policy()).toBe('round_robin')
  })
})

describe('an experiment', () => {
  it('refuses other changes of routing, and a second experiment', async () => {
    cluster = await startCluster({ config: { routing: { policy: 'jsq', artifact } } })
    const { json } = await start({ policies: ['union'], leaseMs: 60_000 })
    const changes = [
      await call(cluster, 'PUT', '/eldr/policy', { policy: 'eldr' }),
      await call(cluster, 'PUT', '/eldr/policy', { tau: 0.2 }),
      await call(cluster, 'POST', '/eldr/artifact', { path: artifact }),
      await call(cluster, 'POST', '/eldr/refit', { workers: 2 }),
      await start({ policies: ['union'] }),
    ]
    for (const change of changes) {
      expect(errorOf(change)).toBe('409 ELDR_EXPERIMENT_RUNNING')
      expect(change.json.error.message).toContain(`DELETE /eldr/experiment/${json.id}`)
    }
    await call(cluster, 'DELETE', `/eldr/experiment/${json.id}`)
    expect((await call(cluster, 'PUT', '/eldr/policy', { policy: 'eldr' })).status).toBe(200)
  })

  it('starts a slot once, however often it is asked for, and renews its lease only for a valid request', async () => {
    cluster = await startCluster({ config: { routing: { policy: 'jsq' } } })
    const { json } = await start({ policies: ['jsq', 'round_robin'], leaseMs: 60_000 })
    const put = (body: object) => call(cluster, 'PUT', `/eldr/experiment/${json.id}`, body)
    await put({ policy: 'jsq', slot: 1 })
    await stream()
    const [second, again] = [
      await put({ policy: 'round_robin', slot: 2 }),
      await put({ policy: 'round_robin', slot: 2 }),
    ]
    expect(second.json).toMatchObject({ slot: 2, finished: { slot: 1, streams: 1 } })
    expect(again.json).toEqual(second.json)
    for (const slot of [1, 4]) expect(errorOf(await put({ policy: 'jsq', slot }))).toMatch(/^409 /)
    expect(await view()).toMatchObject({ slot: 2, policy: 'round_robin' })
    expect(await running()).toBe(1)
    await call(cluster, 'DELETE', `/eldr/experiment/${json.id}`)
    expect(await running()).toBe(0)
  })

  it('does not live on by requests that it refuses', async () => {
    cluster = await startCluster({ config: { routing: { policy: 'jsq' } } })
    const { json } = await start({ policies: ['round_robin'], leaseMs: 500 })
    const endMs = performance.now() + 10_000
    let status = 409
    while (status === 409 && performance.now() < endMs)
      ({ status } = await call(cluster, 'PUT', `/eldr/experiment/${json.id}`, { policy: 'union' }))
    expect(status).toBe(404)
  })

  it('loses nothing by a response of the gateway that is lost', async () => {
    const inner = await startCluster({ config: { routing: { policy: 'round_robin' } } })
    cluster = inner
    startLoad()
    let puts = 0
    // Every third response to a switch or renewal is lost, after the gateway has done it.
    const proxy = createServer((request, response) => {
      const chunks: Buffer[] = []
      request.on('data', (chunk: Buffer) => chunks.push(chunk))
      request.on('end', () => {
        const { method = 'GET', url } = request
        const body = chunks.length === 0 ? undefined : Buffer.concat(chunks).toString()
        const headers = { 'content-type': 'application/json' }
        void fetch(`${inner.url}${url}`, { method, body, headers }).then(async reply => {
          if (method === 'PUT' && ++puts % 3 === 0) return request.socket.destroy()
          response.writeHead(reply.status, headers)
          return response.end(await reply.text())
        })
      })
    })
    await once(proxy.listen(0, '127.0.0.1'), 'listening')
    const { port } = proxy.address() as { port: number }
    const args = [
      '--policies',
      'jsq,round_robin',
      '--slot',
      '0.6',
      '--washout',
      '0.1',
      '--slots',
      '8',
      '--json',
    ]
    const { code, out } = await experiment(...args, '--url', `http://127.0.0.1:${port}`)
    proxy.close()
    expect([code, puts > 8]).toEqual([0, true])
    expect(JSON.parse(out).slots).toHaveLength(8)
  })

  it('is not touched by a change of routing that began before it', async () => {
    const running = await startCluster({ config: { routing: { policy: 'jsq', artifact } } })
    cluster = running
    const { control } = running.gateway
    const before = control.view().artifact
    for (const change of [() => control.load(artifact, 'another name'), () => control.refit(2)]) {
      const pending = change()
      await Promise.resolve() // it has begun
      await Promise.resolve()
      const { id } = running.gateway.experiments.start(['union'], 60_000)
      await expect(pending).rejects.toMatchObject({ code: 'ELDR_EXPERIMENT_RUNNING' })
      expect(control.view().artifact).toEqual(before)
      running.gateway.experiments.end(id!)
    }
  })

  it.each([
    ['--policies', 'jsq,eldr@'],
    ['--policies', 'jsq,eldr@0.2@3'],
    ['--policies', 'jsq,eldr@9'],
    ['--policies', 'jsq,eldr@abc'],
    ['--policies', 'jsq,union@0.2'],
    ['--lease', '5000'],
    ['--lease', '0.01'],
  ])('is not begun with a wrong setting: %s %s', async (flag, value) => {
    cluster = await startCluster({ config: { routing: { policy: 'jsq', artifact } } })
    const { code, err } = await experiment(flag, value)
    expect(code).toBe(2)
    expect(err).toContain(value.split(',').at(-1))
    expect(await view()).toEqual({ running: false, policy: 'jsq' })
  })

  it('is refused for a policy that lacks something, for other policies than its own, and with replicas', async () => {
    cluster = await startCluster({
      config: { routing: { policy: 'jsq' } },
    })
    expect(errorOf(await start({ policies: ['jsq', 'eldr'] }))).toBe('409 ELDR_POLICY_LACKS')
    expect(errorOf(await start({ policies: [] }))).toBe('400 ELDR_BAD_REQUEST')
    expect(errorOf(await start({ policies: ['fastest'] }))).toBe('400 ELDR_BAD_REQUEST')
    const { json } = await start({ policies: ['union'] })
    const put = (body: object) => call(cluster, 'PUT', `/eldr/experiment/${json.id}`, body)
    expect(errorOf(await put({ policy: 'jsq' }))).toBe('409 ELDR_EXPERIMENT_REFUSED')
    expect(errorOf(await put({ washoutMs: 5 }))).toBe('400 ELDR_BAD_REQUEST')
    expect(await policy()).toBe('jsq')
    await cluster.stop()
    cluster = await startCluster({ config: { replicas: { url: 'redis://127.0.0.1:1' } } })
    const refused = await start({ policies: ['union'] })
    expect(errorOf(refused)).toBe('409 ELDR_EXPERIMENT_REFUSED')
    expect(refused.json.error.message).toContain('replicas')
  })

  it('ends when the gateway shuts down', async () => {
    const running = await startCluster({ config: { routing: { policy: 'round_robin' } } })
    cluster = running
    const { json } = await start({ policies: ['jsq'], leaseMs: 60_000 })
    await call(cluster, 'PUT', `/eldr/experiment/${json.id}`, { policy: 'jsq' })
    running.gateway.drain()
    expect(running.gateway.experiments.view()).toEqual({ running: false, policy: 'round_robin' })
  })

  it('is over when the owner process dies, and the next owner has the policy from before', async () => {
    const running = await startProcessCluster({ config: { routing: { policy: 'round_robin' } } })
    cluster = running
    const { json } = await start({ policies: ['jsq'], leaseMs: 60_000 })
    await call(cluster, 'PUT', `/eldr/experiment/${json.id}`, { policy: 'jsq' })
    expect(await policy()).toBe('jsq')
    const pid = running.pidOf('owner')
    process.kill(pid, 'SIGKILL')
    await running.replaced('owner', pid)
    expect(await view()).toEqual({ running: false, policy: 'round_robin' })
  })
})

async function running(): Promise<number> {
  const text = await (await fetch(`${cluster.url}/metrics`)).text()
  return Number(/^eldr_experiment_running (\d)/m.exec(text)?.[1])
}

async function reports(kind: string): Promise<number> {
  const text = await (await fetch(`${cluster.url}/metrics`)).text()
  return Number(new RegExp(`eldr_tokens_total\\{kind="${kind}"\\} (\\d+)`).exec(text)?.[1])
}

function launch(...args: string[]) {
  return spawn(process.execPath, [PROGRAM, 'experiment', '--url', cluster.url, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
}

async function experiment(...args: string[]): Promise<{ code: number | null; out: string; err: string }> {
  const child = launch(...args)
  let [out, err] = ['', '']
  child.stdout.on('data', (chunk: Buffer) => (out += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (err += chunk.toString()))
  const [code] = (await once(child, 'close')) as [number | null]
  return { code, out, err }
}
