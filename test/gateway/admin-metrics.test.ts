import { readFileSync } from 'node:fs'
import { createServer, type AddressInfo } from 'node:net'
import { afterAll, afterEach, describe, expect, it } from 'vitest'
import { readSamples } from '../../src/cluster/metrics-text.ts'
import { metricsPage } from '../../src/gateway/observe/metrics/metrics-page.ts'
import { VERSION } from '../../src/version.ts'
import { temporaryFolder } from '../trace-support.ts'
import { call, smallArtifact } from './admin-support.ts'
import { type Cluster, type ClusterOptions, startCluster } from './cluster.ts'

let cluster: Cluster
const start = async (options: ClusterOptions = {}) => void (cluster = await startCluster(options))
afterEach(() => cluster?.stop())
const folder = temporaryFolder()
afterAll(() => folder.remove())

/** Values by labels, such as leg=decode,worker=a. */
async function metric(name: string): Promise<Record<string, number>> {
  const text = await (await fetch(`${cluster.url}/metrics`)).text()
  return Object.fromEntries(
    readSamples(text, new Set([name])).map(({ labels, value }) => [
      Object.entries(labels)
        .map(([key, of]) => `${key}=${of}`)
        .toSorted()
        .join(),
      value,
    ]),
  )
}

describe('gauges', () => {
  it('show load, state and breaker of each worker, and the queue', async () => {
    await start({
      prefill: 1,
      decode: 2,
      config: {
        workers: {},
        routing: { policy: 'jsq' },
        limits: { maxConcurrentRequests: 2, queueSize: 4 },
        breaker: { consecutiveFailures: 1 },
        retries: { max: 0 },
      },
    })
    const [a, b] = cluster.decodes.map(({ url }) => new URL(url).host) as [string, string]
    let release = () => {}
    const until = new Promise<void>(resolve => (release = resolve))
    for (const decode of cluster.decodes) decode.fail({ kind: 'hang', after: 'tokens', tokens: 1, until })
    const ask = () => cluster.post('/v1/completions', { prompt: 'abcdefgh', max_tokens: 4, stream: true })
    const streams = await Promise.all([ask(), ask()])
    const waiting = ask()
    while ((await metric('eldr_queue_length'))[''] !== 1);
    expect(await metric('eldr_running_requests')).toEqual({ '': 2 })
    expect(await metric('eldr_worker_inflight')).toMatchObject({
      [`leg=decode,worker=${a}`]: 1,
      [`leg=decode,worker=${b}`]: 1,
    })
    const tokens = await metric('eldr_worker_inflight_tokens')
    expect(tokens[`leg=decode,worker=${a}`]).toBeGreaterThan(0)
    await call(cluster, 'POST', `/eldr/workers/${a}/drain`)
    const states = await metric('eldr_worker_state')
    expect(states[`leg=decode,state=draining,worker=${a}`]).toBe(1)
    expect(states[`leg=decode,state=ready,worker=${a}`]).toBe(0)
    expect(states[`leg=decode,state=ready,worker=${b}`]).toBe(1)
    expect(Object.keys(states)).toHaveLength(3 * 5)
    release()
    for (const stream of [...streams, await waiting]) await stream.text()
    for (const decode of cluster.decodes) decode.clearFaults()
    cluster.decodes[1]!.failNext({ kind: 'reset', after: 'request' })
    await (await ask()).text()
    expect((await metric('eldr_worker_breaker_state'))[`leg=decode,worker=${b}`]).toBe(2)
    expect((await metric('eldr_worker_breaker_state'))[`leg=decode,worker=${a}`]).toBe(0)
    expect(await metric('eldr_workers')).toEqual({ 'leg=prefill': 1, 'leg=decode': 2 })
    await cluster.idle()
  })

  it('show the routing in force, the version and the event loop delay', async () => {
    const { path } = await smallArtifact(folder.path, 2)
    await start()
    expect(await metric('eldr_artifact_info')).toEqual({})
    expect(await metric('eldr_artifact_clusters')).toEqual({ '': 0 })
    const { json } = await call(cluster, 'POST', '/eldr/artifact', { path })
    expect(await metric('eldr_artifact_info')).toEqual({ [`model=fake,sha256=${json.artifact.sha256}`]: 1 })
    expect(await metric('eldr_artifact_clusters')).toEqual({ '': 2 })
    await call(cluster, 'PUT', '/eldr/policy', { policy: 'eldr' })
    expect(await metric('eldr_policy_info')).toEqual({ 'policy=eldr,prefill_policy=prefix_hash': 1 })
    expect(await metric('eldr_build_info')).toEqual({ [`node=${process.version},version=${VERSION}`]: 1 })
    expect((await metric('eldr_uptime_seconds'))['']).toBeGreaterThan(0)
    expect((await metric('eldr_event_loop_delay_p99_seconds'))['']).toBeGreaterThanOrEqual(0)
  })
})

describe('a metric of a feature that is off', () => {
  it('is absent instead of 0: a store that is not configured is not down', async () => {
    await start()
    const names = readSamples(
      await (await fetch(`${cluster.url}/metrics`)).text(),
      new Set(['eldr_replica_store_up', 'eldr_replicas', 'eldr_uptime_seconds']),
    )
    expect(names.map(({ name }) => name)).toEqual(['eldr_uptime_seconds'])
  })
})

describe('server.metricsPort', () => {
  it('serves metrics only, and the main port no longer does', async () => {
    const free = createServer().listen(0, '127.0.0.1')
    await new Promise(resolve => free.once('listening', resolve))
    const { port } = free.address() as AddressInfo
    await new Promise(resolve => free.close(resolve))
    await start({ config: { server: { metricsPort: port } } })
    const at = (path: string, method = 'GET') => fetch(`http://127.0.0.1:${port}${path}`, { method })
    expect(await (await at('/metrics')).text()).toContain('eldr_build_info')
    expect((await at('/metrics', 'POST')).status).toBe(405)
    expect((await at('/eldr/workers')).status).toBe(404)
    expect((await fetch(`${cluster.url}/metrics`)).status).toBe(404)
  })
})

describe('docs/reference/metrics.md', () => {
  it('is up to date: run `npm run build && npm run docs` if it is not', () => {
    expect(readFileSync(new URL('../../docs/reference/metrics.md', import.meta.url), 'utf8')).toBe(
      metricsPage(),
    )
  })

  it('describes every metric, and every name starts with eldr_', async () => {
    await start()
    const names = [...(await (await fetch(`${cluster.url}/metrics`)).text()).matchAll(/^# TYPE (\S+)/gm)].map(
      ([, name]) => name!,
    )
    const own = names.filter(name => !/^(process|nodejs)_/.test(name))
    expect(own.every(name => name.startsWith('eldr_'))).toBe(true)
    for (const name of own) expect(metricsPage()).toContain(`| \`${name}\` |`)
    for (const row of metricsPage()
      .split('\n')
      .filter(line => line.startsWith('| `')))
      expect(row).toMatch(/[^.]\. \|$/)
  })
})
