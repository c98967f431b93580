/** Metrics of refusals, connections, bytes, tickets and single workers. */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { request } from 'node:https'
import { afterEach, describe, expect, it } from 'vitest'
import { readSamples } from '../../src/cluster/metrics-text.ts'
import type { FakeWorker } from '../fake-worker/index.ts'
import { temporaryFolder } from '../trace-support.ts'
import { call, smallArtifact } from './admin-support.ts'
import { type Cluster, type ClusterOptions, startCluster } from './cluster.ts'
import { RawClient } from './raw-socket.ts'
import { HAS_OPENSSL, makeCertificates } from './tls-files.ts'

let cluster: Cluster
const start = async (options: ClusterOptions = {}) => void (cluster = await startCluster(options))
afterEach(() => cluster?.stop())

/**
 * Values by labels, such as leg=decode,worker=a, from the registry itself: nothing is asked over the
 * connections that are counted.
 */
async function metric(name: string): Promise<Record<string, number>> {
  await new Promise(setImmediate) // so that who asks again and again lets others run
  const text = await cluster.gateway.context.metrics.registry.metrics()
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

const risen = async (name: string) =>
  Object.fromEntries(Object.entries(await metric(name)).filter(([, value]) => value > 0))
const body = { prompt: 'abcdefgh', max_tokens: 4, stream: true }
const ask = async (more: object = {}) => (await cluster.post('/v1/completions', { ...body, ...more })).text()

describe('eldr_error_answers_total', () => {
  it('has every code at 0 from the start, so that the first increase is visible', async () => {
    await start()
    expect(await metric('eldr_error_answers_total')).toMatchObject({
      'code=ELDR_OVERLOADED': 0,
      'code=ELDR_STREAM_BROKEN': 0,
    })
    expect(await metric('eldr_requests_total')).toMatchObject({
      'outcome=failed,route=chat': 0,
      'outcome=ok,route=completions': 0,
    })
    expect(await metric('eldr_signature_rejects_total')).toMatchObject({ 'reason=missing': 0 })
  })

  it('counts error responses, error events of streams, and requests that are not HTTP', async () => {
    await start({ prefill: 1, decode: 1, config: { workers: {}, retries: { max: 0 } } })
    await cluster.post('/v1/completions', '{')
    await cluster.post('/v1/embeddings', {})
    expect(await risen('eldr_error_answers_total')).toEqual({
      'code=ELDR_BAD_REQUEST': 1,
      'code=ELDR_NOT_GENERATION': 1,
    })
    cluster.decodes[0]!.failNext({ kind: 'reset', after: 'tokens', tokens: 2 })
    expect(await ask()).toContain('ELDR_STREAM_BROKEN')
    cluster.decodes[0]!.failNext({ kind: 'reset', after: 'tokens', tokens: 2 })
    expect(await ask({ n: 2 })).toContain('ELDR_STREAM_BROKEN')
    expect(await metric('eldr_error_answers_total')).toMatchObject({ 'code=ELDR_STREAM_BROKEN': 2 })
    const raw = new RawClient(cluster.url).send('this is no HTTP\r\n\r\n')
    expect((await raw.toEnd())[0]!.status).toBe(400)
    expect(await metric('eldr_error_answers_total')).toMatchObject({ 'code=ELDR_BAD_REQUEST': 2 })
  })

  it('does not count errors of a worker, nor clients that left', async () => {
    await start({ prefill: 1, decode: 1 })
    cluster.prefills[0]!.failNext({ kind: 'status', status: 400 })
    await ask()
    expect(await metric('eldr_requests_total')).toMatchObject({
      'outcome=worker_refused,route=completions': 1,
    })
    expect(await risen('eldr_error_answers_total')).toEqual({})
  })
})

describe('connections and bytes', () => {
  it('are counted for clients and for workers', async () => {
    await start({ prefill: 1, decode: 1 })
    expect(await metric('eldr_client_connections_total')).toEqual({ '': 0 })
    const client = new RawClient(cluster.url)
    const text = JSON.stringify({ ...body, prompt: 'x'.repeat(5_000) })
    client.send(`POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: ${text.length}\r\n\r\n${text}`)
    while (!client.text.includes('[DONE]')) await once(client.socket, 'data')
    expect(await metric('eldr_client_connections')).toEqual({ '': 1 })
    const { 'direction=received': received, 'direction=sent': sent } = await metric('eldr_client_bytes_total')
    expect(received).toBe(
      text.length +
        `POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: ${text.length}\r\n\r\n`.length,
    )
    expect(sent).toBeGreaterThanOrEqual(client.text.length)
    const worker = new URL(cluster.decodes[0]!.url).host
    const bytes = await metric('eldr_worker_bytes_total')
    expect(bytes[`direction=sent,leg=decode,worker=${worker}`]).toBeGreaterThan(5_000)
    expect(bytes[`direction=received,leg=decode,worker=${worker}`]).toBeGreaterThan(200)
    await cluster.idle()
    const connections = await metric('eldr_worker_connections')
    expect(
      connections[`leg=decode,state=busy,worker=${worker}`]! +
        connections[`leg=decode,state=idle,worker=${worker}`]!,
    ).toBeGreaterThan(0)
    client.socket.destroy()
    while ((await metric('eldr_client_connections'))[''] !== 0);
    // They stay when it is gone.
    expect(await metric('eldr_client_bytes_total')).toMatchObject({ 'direction=received': received })
    expect(await metric('eldr_client_connections_total')).toEqual({ '': 1 })
  })

  it.runIf(HAS_OPENSSL)('are counted inside of TLS', async () => {
    const pairs = makeCertificates('gateway')
    await start({ prefill: 1, decode: 1, config: { server: { tls: pairs.gateway } } })
    const asked = request(`${cluster.url}/v1/completions`, {
      method: 'POST',
      ca: readFileSync(pairs.gateway.certFile),
      agent: false,
    })
    const text = JSON.stringify({ ...body, prompt: 'x'.repeat(3_000) })
    const [response] = (await once(asked.end(text), 'response')) as [NodeJS.ReadableStream]
    let got = 0
    for await (const chunk of response) got += chunk.length
    const bytes = await metric('eldr_client_bytes_total')
    expect(bytes['direction=received']).toBeGreaterThan(text.length)
    expect(bytes['direction=sent']).toBeGreaterThan(got)
    expect(await metric('eldr_client_connections_total')).toEqual({ '': 1 })
    pairs.remove()
  })
})

describe('load', () => {
  it('has tickets and their age, limits, queue time and prompt tokens', async () => {
    await start({
      prefill: 1,
      decode: 1,
      config: { workers: {}, limits: { maxConcurrentRequests: 1, queueSize: 3 } },
    })
    expect([await metric('eldr_running_requests_limit'), await metric('eldr_queue_limit')]).toEqual([
      { '': 1 },
      { '': 3 },
    ])
    expect(await metric('eldr_oldest_ticket_seconds')).toEqual({ '': 0 })
    let release = () => {}
    cluster.decodes[0]!.failNext({
      kind: 'hang',
      after: 'tokens',
      tokens: 1,
      until: new Promise<void>(resolve => (release = resolve)),
    })
    const first = cluster.post('/v1/completions', body)
    while ((await metric('eldr_tickets'))['leg=decode'] !== 1);
    const second = ask()
    while ((await metric('eldr_queue_length'))[''] !== 1);
    expect((await metric('eldr_oldest_ticket_seconds'))['']).toBeGreaterThan(0)
    release()
    await Promise.all([(await first).text(), second])
    await cluster.idle()
    expect(await metric('eldr_tickets')).toEqual({ 'leg=decode': 0, 'leg=prefill': 0 })
    expect(await metric('eldr_queue_seconds_count')).toEqual({ '': 2 })
    expect((await metric('eldr_queue_seconds_sum'))['']).toBeGreaterThan(0)
    expect((await metric('eldr_tokens_total'))['kind=prompt']).toBeGreaterThan(0)
    expect(await metric('eldr_ticket_double_releases_total')).toEqual({ '': 0 })
    expect(await metric('eldr_retry_budget')).toEqual({ '': 10 })
  })

  it('has a time to first token for streams only', async () => {
    await start({ prefill: 1, decode: 1 })
    await ask({ stream: false })
    expect(await metric('eldr_time_to_first_token_seconds_count')).toEqual({})
    await ask()
    expect(await metric('eldr_time_to_first_token_seconds_count')).toEqual({ 'route=completions': 1 })
  })
})

describe('a worker', () => {
  it('has its requests, checks and pace, and no series remains when it is removed', async () => {
    await start({
      prefill: 1,
      decode: 2,
      config: { workers: {}, routing: { policy: 'round_robin' }, health: { intervalMs: 50 } },
    })
    const [a, b] = cluster.decodes.map(({ url }) => new URL(url).host) as [string, string]
    for (let n = 0; n < 4; n++) await ask()
    const requests = await metric('eldr_worker_requests_total')
    expect([requests[`leg=decode,worker=${a}`], requests[`leg=decode,worker=${b}`]]).toEqual([2, 2])
    expect((await metric('eldr_worker_recent_seconds'))[`leg=decode,worker=${a}`]).toBeGreaterThan(0)
    expect((await metric('eldr_health_checks_total'))[`result=ok,worker=${a}`]).toBeGreaterThan(0)
    expect((await metric('eldr_breaker_transitions_total'))[`to=open,worker=${a}`]).toBe(0)
    expect([await metric('eldr_ready'), await metric('eldr_workers_ready')]).toEqual([
      { '': 1 },
      { 'leg=prefill': 1, 'leg=decode': 2 },
    ])
    await cluster.decodes[0]!.close()
    while (!((await metric('eldr_health_checks_total'))[`result=failed,worker=${a}`]! > 0));
    while ((await metric('eldr_workers_ready'))['leg=decode'] !== 1);
    await call(cluster, 'DELETE', `/eldr/workers/${a}`)
    const seriesOf = async () =>
      (await cluster.gateway.context.metrics.registry.metrics()).split('\n').filter(line => line.includes(a))
    while ((await seriesOf()).length > 0) await new Promise(setImmediate)
    expect((await metric('eldr_worker_requests_total'))[`leg=decode,worker=${b}`]).toBe(2)
    await call(cluster, 'POST', `/eldr/workers/${b}/drain`)
    expect([await metric('eldr_ready'), await metric('eldr_workers_ready')]).toEqual([
      { '': 0 },
      { 'leg=prefill': 1, 'leg=decode': 0 },
    ])
  })
})

describe('a worker that replaces another under the same id', () => {
  it('has all its series from the start, at 0', async () => {
    await start({ prefill: 1, decode: 2, config: { routing: { policy: 'round_robin' } } })
    const [a, b] = cluster.decodes as [FakeWorker, FakeWorker]
    const id = new URL(a.url).host
    await Promise.all([ask(), ask()])
    let release = () => {}
    a.failNext({
      kind: 'hang',
      after: 'tokens',
      tokens: 1,
      until: new Promise<void>(resolve => (release = resolve)),
    })
    const busy = [ask(), ask()]
    while ((await metric('eldr_worker_inflight'))[`leg=decode,worker=${id}`] !== 1);
    await call(cluster, 'DELETE', `/eldr/workers/${new URL(b.url).host}`)
    await call(cluster, 'DELETE', `/eldr/workers/${id}`) // it has a request, and stays until that has ended
    expect((await call(cluster, 'POST', '/eldr/workers', { id, url: b.url, role: 'decode' })).status).toBe(
      201,
    )
    while ((await metric('eldr_worker_requests_total'))[`leg=decode,worker=${id}`] !== 0);
    expect((await metric('eldr_worker_restarts_total'))[`worker=${id}`]).toBe(0)
    release()
    await Promise.all(busy)
  })
})

describe('the fit', () => {
  it('has quantiles of the similarity of live and calibration requests', async () => {
    const folder = temporaryFolder()
    const { path, artifact } = await smallArtifact(folder.path, 2)
    await start({ config: { routing: { artifact: path, policy: 'eldr' } } })
    folder.remove()
    const { value } = artifact.about.bestSimilarity.find(({ q }) => q === 0.5)!
    expect(await metric('eldr_fit_similarity')).toMatchObject({ 'of=calibration,q=0.5': value })
    expect(
      Object.keys(await metric('eldr_fit_similarity')).filter(labels => labels.includes('live')),
    ).toEqual([])
    for (let n = 0; n < 3; n++) await ask({ prompt: `prompt ${n}` })
    expect((await metric('eldr_fit_similarity'))['of=live,q=0.5']).toBeGreaterThan(0)
    expect(await metric('eldr_fit_compared_requests')).toEqual({ '': 3 })
    expect(await metric('eldr_clusters_misfit')).toEqual({ '': 0 })
  })

  it('has routing changes by cause', async () => {
    await start()
    await call(cluster, 'PUT', '/eldr/policy', { policy: 'jsq' })
    expect(await metric('eldr_routing_changes_total')).toMatchObject({
      'cause=policy': 1,
      'cause=refit_refused': 0,
    })
  })
})
