import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { startFakeWorker } from '../fake-worker/index.ts'
import { type DnsRecord, DnsServer } from './dns-server.ts'
import { type Discovering, type Pods, startDiscovering, startPods } from './support.ts'

let pods: Pods
let dns: DnsServer
let current: Discovering | undefined
beforeAll(async () => void (pods = await startPods(3)))
afterAll(() => pods.close())
beforeEach(async () => {
  dns = await DnsServer.start()
  dns.records.set('prefill.llm.svc', [{ type: 'A', address: '127.0.0.1' }])
})
afterEach(async () => {
  await current?.gateway.stop()
  current = undefined
  await dns.close()
})

const a = (...pods: number[]): DnsRecord[] => pods.map(n => ({ type: 'A', address: `127.0.0.${n + 2}` }))
const id = (n: number) => `127.0.0.${n + 2}:${pods.port}`
async function start(more: object = {}): Promise<Discovering> {
  const names = {
    prefill: `http://prefill.llm.svc:${pods.port}`,
    decode: `http://decode.llm.svc:${pods.port}`,
  }
  current = await startDiscovering({ dns: { ...names, server: dns.address, intervalMs: 200, ...more } })
  return current
}
const sees = (...decodes: number[]) => {
  const wanted = JSON.stringify(
    ['127.0.0.1', ...decodes.map(n => `127.0.0.${n + 2}`)].map(host => [`${host}:${pods.port}`, 'ready']),
  )
  return current!.until(() => JSON.stringify(Object.entries(current!.states()).toSorted()) === wanted)
}

describe('names in DNS', () => {
  it('are looked up periodically: addresses appear and disappear', async () => {
    dns.records.set('decode.llm.svc', a(0, 1))
    const { get } = await start()
    await sees(0, 1)
    expect((await current!.post({ prompt: 'a', max_tokens: 3 })).status).toBe(200)
    expect((await get('/eldr/workers')).workers[0]).toMatchObject({ source: 'dns' })
    dns.records.set('decode.llm.svc', a(2, 1))
    await sees(1, 2)
    expect(current!.view(id(1))!.index).toBe(1)
    expect(dns.questions).not.toContain('decode.llm.svc AAAA')
  })

  it.each([
    ['SERVFAIL', 'ESERVFAIL', 'failed'],
    ['NXDOMAIN', 'NXDOMAIN', 'empty'],
    ['REFUSED', 'EREFUSED', 'failed'],
    ['NOERROR', 'has no A or AAAA records', 'empty'],
  ] as const)(
    'that cannot be looked up (%s) keep their last addresses, with one warning',
    async (trouble, words, reason) => {
      dns.records.set('decode.llm.svc', a(0, 1))
      const { until, warnings, get, metric, states } = await start()
      await sees(0, 1)
      dns.trouble = trouble
      await until(() =>
        warnings().some(line => line.includes('prefill.llm.svc') && line.includes('decode.llm.svc')),
      )
      await dns.asked(8)
      expect(warnings().at(-1)).toContain(words)
      // One warning for each of the two names.
      expect(warnings().length).toBeLessThanOrEqual(2)
      expect(Object.values(states())).toEqual(['ready', 'ready', 'ready'])
      expect(await get('/ready')).toMatchObject({
        status: 'ready',
        discovery: [{ source: 'dns', up: false, reason }],
      })
      expect(await metric('eldr_discovery_up', { source: 'dns' })).toBe(0)
      dns.trouble = undefined
      dns.records.set('decode.llm.svc', a(1))
      await sees(1)
      await until(() => current!.lines.some(({ msg }) => msg === 'discovery: recovered'))
      expect(await metric('eldr_discovery_up', { source: 'dns' })).toBe(1)
    },
  )

  it('that fail do not affect other names', async () => {
    dns.records.set('decode.llm.svc', a(0))
    await start()
    await sees(0)
    dns.records.delete('prefill.llm.svc')
    await current!.until(() =>
      current!.warnings().some(line => line.includes('prefill.llm.svc does not exist')),
    )
    dns.records.set('decode.llm.svc', a(0, 1))
    await sees(0, 1)
    expect((await current!.get('/ready')).discovery).toMatchObject([{ up: false, workers: 3 }])
  })

  it('whose DNS server does not respond are looked up again', async () => {
    dns.trouble = 'silence'
    dns.records.set('decode.llm.svc', a(0))
    const { until, warnings } = await start()
    await until(() => warnings().some(line => line.includes('no response from a DNS server for')))
    expect(await current!.get('/ready')).toMatchObject({
      status: 'waiting for workers',
      discovery: [{ reason: 'unreachable', workers: 0 }],
    })
    dns.trouble = undefined
    await sees(0)
  })

  it('of services (SRV) give ports, and workers are named after their targets', async () => {
    const other = await startFakeWorker({ role: 'decode', prefills: [pods.prefill], host: '127.0.0.5' })
    const srv = (target: string, port: number): DnsRecord => ({ type: 'SRV', target, port })
    dns.records.set('_http._tcp.decode.llm.svc', [
      srv('decode-0.decode.llm.svc', pods.port),
      srv('decode-1.decode.llm.svc', other.port),
      srv('missing.llm.svc', 1),
    ])
    dns.records.set('decode-0.decode.llm.svc', a(0))
    dns.records.set('decode-1.decode.llm.svc', [{ type: 'A', address: '127.0.0.5' }])
    const { until, states, view, get } = await start({ decode: 'srv://_http._tcp.decode.llm.svc' })
    const [first, second] = [`decode-0.decode.llm.svc:${pods.port}`, `decode-1.decode.llm.svc:${other.port}`]
    await until(() => states()[first] === 'ready' && states()[second] === 'ready')
    expect(view(second)!.spec.url).toBe(other.url)
    expect((await get('/eldr/workers')).discovery[0].notes).toEqual([
      'missing.llm.svc (target of _http._tcp.decode.llm.svc) has no address: skipped',
    ])
    // A pod of a StatefulSet that restarted: another address, the same name and index.
    const { index } = view(first)!
    dns.records.set('decode-0.decode.llm.svc', a(2))
    await until(() => view(first)!.spec.url === pods.decodes[2]!.url && states()[first] === 'ready')
    expect(view(first)!.index).toBe(index)
    await other.close()
  })

  it('use IPv6 addresses if there are no others', async () => {
    const six = await startFakeWorker({ role: 'decode', prefills: [pods.prefill], host: '::1' }).catch(
      () => undefined,
    )
    if (six === undefined) return // a machine without IPv6
    dns.records.set('decode.llm.svc', [{ type: 'AAAA', address: '::1' }])
    const { until, states, get } = await start({ decode: `http://decode.llm.svc:${six.port}` })
    await until(() => states()[`[::1]:${six.port}`] === 'ready')
    expect((await get('/eldr/workers')).workers).toContainEqual(
      expect.objectContaining({ url: `http://[::1]:${six.port}` }),
    )
    await six.close()
  })
})
