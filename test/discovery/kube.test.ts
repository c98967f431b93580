import { describe, expect, it } from 'vitest'
import { smallArtifact } from '../gateway/admin-support.ts'
import { eventually, gate } from '../gateway/watching.ts'
import { FakeKube } from './fake-kube.ts'
import { ask, DECODE, kubeStage, pod } from './kube-stage.ts'
import { heldStreams, startDiscovering } from './support.ts'

const { on, putDecode, start } = kubeStage()

describe('pods of Kubernetes', () => {
  it('are found by the labels of their slices, named, checked and used', async () => {
    const { get, states, metric } = await start([pod(0), pod(1, { ready: false })])
    expect(states()).toEqual({ 'prefill-0': 'ready', 'decode-0': 'ready' })
    const { workers, discovery } = await get('/eldr/workers')
    expect(workers).toContainEqual(
      expect.objectContaining({
        id: 'decode-0',
        role: 'decode',
        url: `http://127.0.0.2:${on.pods.port}`,
        source: 'kubernetes',
      }),
    )
    expect(discovery).toEqual([
      { source: 'kubernetes', up: true, workers: 2, lastSuccess: expect.stringMatching(/^20/) },
    ])
    expect((await ask(on.current!)).status).toBe(200)
    expect(await get('/ready')).toEqual({ status: 'ready', prefill: 1, decode: 1, discovery })
    const lists = on.kube.requests.filter(({ query }) => query.get('watch') === null)
    expect(lists.map(({ path, query }) => [path, query.get('labelSelector')])).toEqual([
      ['/apis/discovery.k8s.io/v1/namespaces/llm/endpointslices', 'app=vllm,role=prefill'],
      ['/apis/discovery.k8s.io/v1/namespaces/llm/endpointslices', 'app=vllm,role=decode'],
    ])
    expect(await metric('eldr_discovery_up', { source: 'kubernetes' })).toBe(1)
    expect(await metric('eldr_discovery_changes_total', { change: 'added' })).toBe(2)
    expect(Math.abs((await metric('eldr_discovery_last_success_seconds'))! - Date.now() / 1000)).toBeLessThan(
      60,
    )
  })

  it('appear, become ready, become unready, and disappear', async () => {
    const { until, states, view } = await start([pod(0)])
    putDecode(pod(0), pod(1, { ready: false }), pod(2))
    await until(() => states()['decode-2'] === 'ready')
    expect(view('decode-2')!.index).toBe(2)
    putDecode(pod(0), pod(1), pod(2, { ready: false }))
    await until(() => states()['decode-1'] === 'ready' && states()['decode-2'] === 'draining')
    expect(view('decode-1')!.index).toBe(1)
    putDecode(pod(0), pod(1), pod(2))
    await until(() => states()['decode-2'] === 'ready')
    putDecode(pod(1))
    await until(() => Object.keys(states()).length === 2)
    expect(states()).toEqual({ 'prefill-0': 'ready', 'decode-1': 'ready' })
    putDecode()
    await until(() => states()['decode-1'] === undefined)
    expect(await on.current!.get('/ready')).toMatchObject({
      status: 'waiting for workers',
      decode: 0,
      discovery: [{ up: true, workers: 1 }],
    })
  })

  it('that terminate while they stream finish their streams and leave nothing behind', async () => {
    const { until, states, view, metric } = await start()
    const streams = await heldStreams(on.current!, on.pods.decodes.slice(0, 2))
    expect([view('decode-0')!.inflight, view('decode-1')!.inflight]).toEqual([1, 1])
    putDecode(pod(0, { terminating: true, ready: false, serving: true }), pod(1))
    await until(() => states()['decode-0'] === 'draining')
    const before = on.pods.decodes[0]!.counters.decode
    for (let n = 0; n < 3; n++) expect((await ask(on.current!)).status).toBe(200)
    expect(on.pods.decodes[0]!.counters.decode).toBe(before)
    putDecode(pod(1))
    streams.release()
    for (const events of await streams.events()) expect(events.at(-1)).toBe('[DONE]')
    await until(() => states()['decode-0'] === undefined)
    await eventually(() => view('decode-1')!.inflight === 0)
    expect(await metric('eldr_worker_inflight')).toBe(0)
    expect(await metric('eldr_ticket_leaks_total')).toBe(0)
  })

  it('that come back before their last stream ended stay, with their index', async () => {
    const { until, states, view } = await start([pod(0), pod(1)])
    const streams = await heldStreams(on.current!, on.pods.decodes.slice(0, 2))
    putDecode(pod(1))
    await until(() => states()['decode-0'] === 'draining')
    putDecode(pod(0), pod(1))
    await until(() => states()['decode-0'] === 'ready')
    expect(view('decode-0')).toMatchObject({ index: 0, inflight: 1 })
    streams.release()
    for (const events of await streams.events()) expect(events.at(-1)).toBe('[DONE]')
    expect(on.current!.lines.filter(({ msg }) => msg === 'worker gone: removed')).toEqual([])
  })

  it('keep the cluster of their name after a restart at another address', async () => {
    const { path } = await smallArtifact(on.folder, 2)
    const { get, until, view } = await start([pod(1), pod(0)], {}, { routing: { artifact: path } })
    const clusters = async () =>
      Object.fromEntries(
        (await get('/eldr/workers')).workers.map(({ id, cluster }: { id: string; cluster?: number }) => [
          id,
          cluster,
        ]),
      )
    expect(await clusters()).toEqual({ 'prefill-0': undefined, 'decode-0': 0, 'decode-1': 1 })
    putDecode(pod(1), pod(0, { address: '127.0.0.4' }))
    await until(() => view('decode-0')!.spec.url.includes('127.0.0.4') && view('decode-0')!.state === 'ready')
    expect(await clusters()).toEqual({ 'prefill-0': undefined, 'decode-0': 0, 'decode-1': 1 })
    expect(on.current!.lines.filter(({ msg }) => msg === 'refitted')).toEqual([])
  })

  it('of all namespaces have the namespace in their names', async () => {
    on.kube = await FakeKube.start()
    on.kube.put({ name: 's', namespace: 'one', labels: DECODE, port: on.pods.port, endpoints: [pod(0)] })
    on.kube.put({
      name: 's',
      namespace: 'two',
      labels: DECODE,
      port: on.pods.port,
      endpoints: [pod(0, { address: '127.0.0.3' })],
    })
    on.current = await startDiscovering({
      kubernetes: {
        enabled: true,
        prefillSelector: ['role=prefill'],
        decodeSelector: ['role=decode'],
        apiUrl: `http://127.0.0.1:${on.kube.port}`,
      },
    })
    const { until, states } = on.current
    await until(() => states()['one:decode-0'] === 'ready' && states()['two:decode-0'] === 'ready')
    expect(on.kube.requests[0]!.path).toBe('/apis/discovery.k8s.io/v1/endpointslices')
  })

  it('that match both selectors are reported and used once', async () => {
    const { until, states, warnings, get } = await start()
    on.kube.put({
      name: 'odd',
      labels: DECODE,
      port: on.pods.port,
      endpoints: [{ pod: 'prefill-0', address: '127.0.0.1' }, pod(2)],
    })
    await until(() => states()['decode-2'] === 'ready')
    expect(on.current!.view('prefill-0')!.spec.role).toBe('prefill')
    expect(warnings()).toEqual(['discovery: workers skipped'])
    const note = 'prefill-0 is listed as both a prefill and a decode worker: used as prefill'
    expect((await get('/eldr/workers')).discovery[0].notes).toEqual([note])
    expect(JSON.stringify(await get('/ready'))).not.toContain('prefill-0')
  })

  it('do not affect workers that were added by hand', async () => {
    const { until, states, url, get } = await start([pod(0)])
    const body = JSON.stringify({ id: 'by-hand', role: 'decode', url: `http://127.0.0.3:${on.pods.port}` })
    await fetch(`${url}/eldr/workers`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
    })
    await until(() => states()['by-hand'] === 'ready')
    putDecode(pod(0), pod(1))
    putDecode()
    await until(() => states()['decode-0'] === undefined)
    expect(states()).toEqual({ 'prefill-0': 'ready', 'by-hand': 'ready' })
    expect(
      (await get('/eldr/workers')).workers.find(({ id }: { id: string }) => id === 'by-hand').source,
    ).toBe('admin')
  })
})

describe('two thousand endpoints', () => {
  it('are listed in pages and registered while requests are served', async () => {
    const { metric } = await start([pod(0)], {}, { health: { intervalMs: 60_000 } })
    let added = 0
    const all = gate()
    const { registry } = on.current!.gateway.context
    registry.subscribe(({ kind }) => kind === 'added' && ++added === 2_000 && all.open())
    for (let slice = 0; slice < 20; slice++) {
      const endpoints = Array.from({ length: 100 }, (_, n) => ({
        pod: `big-${slice}-${n}`,
        address: `127.${slice + 1}.0.${n + 1}`,
      }))
      on.kube.put({ name: `big-${slice}`, labels: DECODE, port: on.pods.port, endpoints })
    }
    // Requests are served while the endpoints are registered.
    let served = 0
    const isDone = () => added >= 2_000
    for (; !isDone(); served++) expect((await ask(on.current!)).status).toBe(200)
    expect(served).toBeGreaterThan(0)
    await all.opened
    expect((await ask(on.current!)).status).toBe(200)
    expect(await metric('eldr_workers', { leg: 'decode' })).toBe(2_001)
  })
})
