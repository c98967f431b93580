/** Servers with several data-parallel engines, found by discovery: each engine is a worker. */
import { mkdtempSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { temporaryFolder } from '../trace-support.ts'
import { DnsServer } from './dns-server.ts'
import { FakeKube } from './fake-kube.ts'
import { type Discovering, type Pods, startDiscovering, startPods } from './support.ts'

const RANKS = { workers: { ranks: 8, prefillRanks: 1, decodeRanks: 2 } }
const root = temporaryFolder()
let pods: Pods
let current: Discovering
const after: (() => unknown)[] = []
beforeAll(async () => void (pods = await startPods(2, 3)))
afterAll(async () => {
  await pods.close()
  root.remove()
})
afterEach(async () => {
  await current.gateway.stop()
  for (const close of after.splice(0)) await close()
})

const sees = (...ids: string[]) =>
  current.until(
    () =>
      JSON.stringify(Object.entries(current.states()).toSorted()) ===
      JSON.stringify(ids.toSorted().map(id => [id, 'ready'])),
  )
const at = (host: number) => `127.0.0.${host}:${pods.port}`

/** A request for each decode worker: every rank of the first `ranks` gets one more. */
async function checkRanks(servers: number, ranks: number): Promise<void> {
  const counts = () => pods.decodes.map(worker => worker.ranks.map(({ decode }) => decode))
  const before = counts()
  for (let n = 0; n < servers * ranks; n++)
    expect((await current.post({ prompt: 'a', max_tokens: 2 })).status).toBe(200)
  const more = counts().map((server, n) => server.map((count, rank) => count - before[n]![rank]!))
  expect(more).toEqual(
    pods.decodes.map((_, n) => [0, 1, 2].map(rank => (n < servers && rank < ranks ? 1 : 0))),
  )
}

describe('ranks of discovered servers', () => {
  it('in DNS are as many as configured for their role', async () => {
    const dns = await DnsServer.start()
    after.push(() => dns.close())
    dns.records.set('prefill.svc', [{ type: 'A', address: '127.0.0.1' }])
    dns.records.set('decode.svc', [{ type: 'A', address: '127.0.0.2' }])
    const names = { prefill: `http://prefill.svc:${pods.port}`, decode: `http://decode.svc:${pods.port}` }
    current = await startDiscovering(
      { dns: { ...names, server: dns.address, intervalMs: 100 } },
      { ...RANKS, routing: { policy: 'round_robin' } },
    )
    await sees(at(1), `${at(2)}@0`, `${at(2)}@1`)
    await checkRanks(1, 2)
    const { workers } = await current.get('/eldr/workers')
    expect(workers).toContainEqual(
      expect.objectContaining({
        id: `${at(2)}@1`,
        dpRank: 1,
        url: `http://${at(2)}`,
        index: 1,
        source: 'dns',
      }),
    )
    dns.records.set('decode.svc', [
      { type: 'A', address: '127.0.0.2' },
      { type: 'A', address: '127.0.0.3' },
    ])
    await sees(at(1), ...[2, 3].flatMap(host => [`${at(host)}@0`, `${at(host)}@1`]))
    await checkRanks(2, 2)
    dns.records.set('decode.svc', [{ type: 'A', address: '127.0.0.3' }])
    await sees(at(1), `${at(3)}@0`, `${at(3)}@1`)
  })

  it('in Kubernetes have the name of their pod, and drain and return with it', async () => {
    const kube = await FakeKube.start()
    after.push(() => kube.close())
    const put = (role: string, ...endpoints: { pod: string; address: string; ready?: boolean }[]) =>
      kube.put({ name: `${role}-abc`, labels: { role }, port: pods.port, endpoints })
    put('prefill', { pod: 'prefill-0', address: '127.0.0.1' })
    put('decode', { pod: 'decode-0', address: '127.0.0.2' })
    const settings = {
      enabled: true,
      prefillSelector: ['role=prefill'],
      decodeSelector: ['role=decode'],
      namespace: 'llm',
      apiUrl: `http://127.0.0.1:${kube.port}`,
    }
    current = await startDiscovering(
      { removeAfterMs: 60_000, kubernetes: settings },
      { ...RANKS, routing: { policy: 'round_robin' } },
    )
    await sees('prefill-0', 'decode-0@0', 'decode-0@1')
    await checkRanks(1, 2)
    expect([0, 1].map(dpRank => current.view(`decode-0@${dpRank}`)!.index)).toEqual([0, 1])
    put('decode', { pod: 'decode-0', address: '127.0.0.2', ready: false })
    await current.until(() => ['decode-0@0', 'decode-0@1'].every(id => current.states()[id] === 'draining'))
    put('decode', { pod: 'decode-0', address: '127.0.0.2' })
    await sees('prefill-0', 'decode-0@0', 'decode-0@1')
    await checkRanks(1, 2)
  })

  it('in a file are as given there, and otherwise as configured', async () => {
    const path = join(mkdtempSync(join(root.path, 'ranks-')), 'workers.yaml')
    const write = (decode: object) =>
      writeFileSync(path, JSON.stringify({ prefill: [{ url: pods.prefill.url, id: 'p' }], decode: [decode] }))
    const [first] = pods.decodes
    write({ url: first!.url, id: 'd' })
    current = await startDiscovering(
      { file: { path, pollMs: 50 } },
      { ...RANKS, routing: { policy: 'round_robin' } },
    )
    await sees('p', 'd@0', 'd@1')
    await checkRanks(1, 2)
    write({ url: first!.url, id: 'd', ranks: 3 })
    await sees('p', 'd@0', 'd@1', 'd@2')
    await checkRanks(1, 3)
    write({ url: first!.url, id: 'd', dpRank: 0 })
    await sees('p', 'd')
    expect(current.view('d')!.spec.dpRank).toBe(0)
    write({ url: `${first!.url}@-1` })
    await current.until(() =>
      current
        .warnings()
        .some(line => line.includes('a data-parallel rank after @ is a whole number from 0 to 1023')),
    )
    await sees('p', 'd')
  })
})
