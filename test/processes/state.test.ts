/** Admin changes survive the owner: the next one has them too. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { readFile, readdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, describe, expect, it } from 'vitest'
import { readSamples, sumByName } from '../../src/cluster/metrics-text.ts'
import { startFakeWorker } from '../fake-worker/index.ts'
import { temporaryFolder } from '../trace-support.ts'
import { killAll, polled } from '../worker/processes.ts'
import { call, follow, smallArtifact } from '../gateway/admin-support.ts'
import { eventsOf } from '../gateway/cluster.ts'
import { ended, type ProcessCluster, startProcessCluster } from '../gateway/process-cluster.ts'

const folder = temporaryFolder()
let cluster: ProcessCluster
afterEach(async () => {
  await cluster.stop()
  await killAll()
})
afterAll(() => folder.remove())

const start = async (options: Parameters<typeof startProcessCluster>[0] = {}) =>
  void (cluster = await startProcessCluster(options))
const ok = async (method: string, path: string, body?: unknown) => {
  const { status, json } = await call(cluster, method, path, body, { connection: 'close' })
  expect([status, JSON.stringify(json)]).toEqual([
    method === 'POST' && path === '/eldr/workers' ? 201 : 200,
    expect.any(String),
  ])
  return json
}
async function replaceOwner(): Promise<void> {
  const pid = cluster.pidOf('owner')
  process.kill(pid, 'SIGKILL')
  await cluster.replaced('owner', pid)
}
interface Worker {
  readonly id: string
  readonly state: string
  readonly index: number
}
const workers = async () => (await cluster.get<{ workers: Worker[] }>('/eldr/workers')).workers
const routing = async () =>
  (
    await cluster.get<{
      routing: { artifact?: { file: string; sha256: string; clusters: number }; policy: string }
    }>('/eldr/config')
  ).routing
const generate = async () =>
  (
    await eventsOf(
      await cluster.post(
        '/v1/completions',
        { prompt: 'Once', stream: true, max_tokens: 3 },
        { headers: { connection: 'close' } },
      ),
    )
  ).at(-1)
const counted = async (name: string) =>
  sumByName(readSamples(await (await fetch(`${cluster.url}/metrics`)).text(), new Set([name]))).get(name)

describe('an artifact', () => {
  it('that was uploaded stays loaded under its name, and the one before it is removed from disk', async () => {
    const { path } = await smallArtifact(folder.path, 2)
    const own = mkdtempSync(join(tmpdir(), 'eldr-own-'))
    const usual = process.env['TMPDIR']
    process.env['TMPDIR'] = own
    await start().finally(() =>
      usual === undefined ? delete process.env['TMPDIR'] : (process.env['TMPDIR'] = usual),
    )
    await ok('POST', '/eldr/artifact', await readFile(path))
    await ok('POST', '/eldr/artifact', await readFile(path))
    await ok('PUT', '/eldr/policy', { policy: 'eldr', tau: 0.3 })
    const before = await routing()
    await replaceOwner()
    expect(await routing()).toEqual(before)
    expect(before).toMatchObject({
      policy: 'eldr',
      tau: 0.3,
      artifact: { file: 'the artifact that was sent', clusters: 2 },
    })
    expect(await generate()).toBe('[DONE]')
    const found = (await readdir(own, { recursive: true })).filter(name =>
      name.endsWith('artifact.safetensors'),
    )
    expect(found).toHaveLength(1)
    rmSync(own, { recursive: true, force: true })
  })

  it('from a file that was deleted since stays loaded, and so do its clusters after a re-fit', async () => {
    const first = await smallArtifact(folder.path, 2)
    const copy = join(folder.path, 'gone.safetensors')
    writeFileSync(copy, await readFile(first.path))
    await start({ config: { routing: { artifact: copy, policy: 'eldr', refit: 'off' } } })
    rmSync(copy)
    await ok('POST', '/eldr/refit', { workers: 3 })
    const before = await routing()
    expect(before.artifact).toMatchObject({ file: copy, clusters: 3 })
    await replaceOwner()
    await polled(routing, ({ artifact }) => artifact?.clusters === 3, 'three clusters')
    expect(await routing()).toEqual(before)
    expect(await generate()).toBe('[DONE]')
    // Loaded by path while the gateway runs.
    const other = await smallArtifact(folder.path, 4)
    writeFileSync(copy, await readFile(other.path))
    await ok('POST', '/eldr/artifact', { path: copy })
    rmSync(copy)
    const after = await routing()
    await replaceOwner()
    expect(await routing()).toEqual(after)
    expect(after.artifact).toMatchObject({ file: copy, clusters: 4 })
  })
})

describe('workers', () => {
  it('stay added, removed, drained or undrained, and the log level stays', async () => {
    await start({ prefill: 2, decode: 3 })
    const more = await startFakeWorker({ role: 'decode', prefills: cluster.prefills })
    const decodes = (await workers()).filter(({ id }) => cluster.decodes.some(({ url }) => url.endsWith(id)))
    const [drained, back, removed] = decodes.map(({ id }) => encodeURIComponent(id))
    await ok('POST', `/eldr/workers/${drained}/drain`)
    await ok('POST', `/eldr/workers/${back}/drain`)
    await ok('POST', `/eldr/workers/${back}/undrain`)
    await ok('DELETE', `/eldr/workers/${removed}`)
    await ok('POST', '/eldr/workers', { role: 'decode', url: more.url, id: 'late' })
    await ok('PUT', '/eldr/log-level', { level: 'debug' })
    const seen = async () => (await workers()).map(({ id, state, index }) => [id, state, index]).toSorted()
    const before = await polled(
      seen,
      all => all.some(([id, state]) => id === 'late' && state === 'ready'),
      'the new one',
    )
    await replaceOwner()
    expect(await polled(seen, all => all.every(([, state]) => state !== 'unknown'), 'workers')).toEqual(
      before,
    )
    expect(await cluster.get('/eldr/log-level')).toMatchObject({ level: 'debug' })
    await more.close()
  })

  it('from discovery keep their index; a drained one stays drained, a removed one stays removed', async () => {
    const file = join(folder.path, 'workers.json')
    const [prefill, ...decodes] = await Promise.all(
      ['prefill', 'decode', 'decode', 'decode', 'decode'].map(role =>
        startFakeWorker({ role: role as 'prefill', prefills: role === 'decode' ? [] : undefined }),
      ),
    )
    const list = (names: readonly string[]) =>
      writeFileSync(
        file,
        JSON.stringify({
          prefill: [{ id: 'p', url: prefill!.url }],
          decode: names.map(id => ({ id, url: decodes[Number(id.slice(1))]!.url })),
        }),
      )
    // d3 has index 0, since it was there first.
    list(['d3'])
    await start({ prefill: 0, decode: 0, config: { discovery: { file: { path: file, pollMs: 50 } } } })
    const seen = async () =>
      Object.fromEntries((await workers()).map(({ id, state, index }) => [id, [state, index]]))
    const isReady = (...ids: string[]) =>
      polled(seen, all => ids.every(id => all[id]?.[0] === 'ready'), `${ids.join()} to be ready`)
    await isReady('p', 'd3')
    list(['d0', 'd1', 'd2', 'd3'])
    await isReady('d0', 'd1', 'd2')
    await ok('POST', '/eldr/workers/d1/drain')
    await ok('DELETE', '/eldr/workers/d2')
    const before = await polled(seen, all => all['d2'] === undefined, 'd2 to be gone')
    expect(before).toMatchObject({ d3: ['ready', 0], d1: ['draining', 2] })
    await replaceOwner()
    await isReady('p', 'd0', 'd3')
    expect(await polled(seen, all => all['d1']?.[0] === 'draining', 'd1')).toEqual(before)
    // Discovery continues.
    list(['d1', 'd3'])
    await polled(seen, all => all['d0'] === undefined || all['d0'][0] === 'draining', 'd0 to be gone')
    await Promise.all([prefill!, ...decodes].map(worker => worker.close()))
  })
})

describe('counters', () => {
  it('do not drop when owner and relays are killed at once, and nothing counts as running', async () => {
    await start()
    for (let n = 0; n < 8; n++) expect(await generate()).toBe('[DONE]')
    const pids = ['owner', 'relay-1', 'relay-2'].map(name => cluster.pidOf(name))
    const before = await counted('eldr_tokens_total')
    expect(before).toBeGreaterThan(0)
    for (const pid of pids) process.kill(pid, 'SIGKILL')
    await ended(pids)
    await Promise.all(['owner', 'relay-1', 'relay-2'].map((name, n) => cluster.replaced(name, pids[n]!)))
    expect(await counted('eldr_tokens_total')).toBe(before)
    expect(await generate()).toBe('[DONE]')
    await cluster.idle()
    expect([await counted('eldr_tickets'), await counted('eldr_running_requests')]).toEqual([0, 0])
  })
})

describe('clients of event streams', () => {
  it('are disconnected when the owner dies, and can connect to the next one', async () => {
    await start()
    const before = await follow(cluster)
    const pulse = await fetch(`${cluster.url}/eldr/pulse`)
    await replaceOwner()
    await expect(before.ended()).rejects.toThrow(/terminated/)
    await expect(pulse.text()).rejects.toThrow(/terminated/)
    const after = await follow(cluster)
    expect(await generate()).toBe('[DONE]')
    expect((await after.find(({ event }) => event === 'decision')).data).toHaveProperty('worker')
    after.leave()
  })
})
