import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import {
  type Discovering,
  heldStreams,
  type Pods,
  startDiscovering,
  startPods,
} from '../../discovery/support.ts'
import { type Dnsmasq, startDnsmasq } from './dnsmasq.ts'

const DOMAIN = 'llm.svc.cluster.local'
let pods: Pods
let dns: Dnsmasq
let current: Discovering | undefined
beforeAll(async () => {
  pods = await startPods(3)
  const srv = (n: number) =>
    `--srv-host=_http._tcp.decode.${DOMAIN},decode-${n}.decode.${DOMAIN},${pods.port}`
  dns = await startDnsmasq(DOMAIN, [srv(0), srv(1)])
})
afterEach(async () => {
  await current?.gateway.stop()
  current = undefined
})
afterAll(async () => {
  await dns.close()
  await pods.close()
})

const address = (n: number) => `127.0.0.${n + 2}`
const hosts = (...decodes: number[]) =>
  dns.hosts({ [`prefill.${DOMAIN}`]: ['127.0.0.1'], [`decode.${DOMAIN}`]: decodes.map(address) })
async function start(
  decode = `http://decode.${DOMAIN}:${pods.port}`,
  more: object = {},
): Promise<Discovering> {
  current = await startDiscovering({
    dns: {
      prefill: `http://prefill.${DOMAIN}:${pods.port}`,
      decode,
      server: dns.address,
      intervalMs: 300,
      ...more,
    },
  })
  return current
}
const sees = (...decodes: number[]) => {
  const wanted = JSON.stringify(
    ['127.0.0.1', ...decodes.map(address)].map(host => [`${host}:${pods.port}`, 'ready']),
  )
  return current!.until(() => JSON.stringify(Object.entries(current!.states()).toSorted()) === wanted)
}

describe('workers in a real DNS server', () => {
  it('appear and disappear, and finish their streams before', async () => {
    await hosts(0, 1)
    const { until, states, post } = await start()
    await sees(0, 1)
    expect((await post({ prompt: 'a', max_tokens: 3 })).status).toBe(200)
    const streams = await heldStreams(current!, pods.decodes.slice(0, 2))
    await hosts(1, 2)
    await until(() => states()[`${address(0)}:${pods.port}`] === 'draining')
    streams.release()
    for (const events of await streams.events()) expect(events.at(-1)).toBe('[DONE]')
    await sees(1, 2)
  })

  it('stay if their name (NXDOMAIN) or the server is gone', async () => {
    await hosts(0, 1)
    const { until, warnings, metric } = await start()
    await sees(0, 1)
    await dns.hosts({}) // the name for decode is left without records, for there are some below it
    await until(() =>
      warnings().some(
        line =>
          line.includes(`prefill.${DOMAIN} does not exist (NXDOMAIN)`) &&
          line.includes(`decode.${DOMAIN} has no A or AAAA records`),
      ),
    )
    await dns.stop()
    await until(() =>
      warnings().some(line =>
        line.includes(`no response from a DNS server for decode.${DOMAIN} (ECONNREFUSED)`),
      ),
    )
    await sees(0, 1)
    expect(await metric('eldr_discovery_up', { source: 'dns' })).toBe(0)
    await dns.start()
    await hosts(2)
    await sees(2)
  })

  it('are found by SRV records and named after their targets', async () => {
    const names = (first: number) => ({
      [`prefill.${DOMAIN}`]: ['127.0.0.1'],
      [`decode-0.decode.${DOMAIN}`]: [address(first)],
      [`decode-1.decode.${DOMAIN}`]: [address(1)],
    })
    await dns.hosts(names(0))
    const { until, states, view } = await start(`srv://_http._tcp.decode.${DOMAIN}`)
    const id = `decode-0.decode.${DOMAIN}:${pods.port}`
    await until(
      () => states()[id] === 'ready' && states()[`decode-1.decode.${DOMAIN}:${pods.port}`] === 'ready',
    )
    await dns.hosts(names(2))
    await until(() => view(id)!.spec.url === `http://${address(2)}:${pods.port}` && states()[id] === 'ready')
    expect(view(id)!.index).toBe(0)
  })

  it('may exceed a UDP datagram', async () => {
    const many = Array.from({ length: 400 }, (_, n) => `127.9.${Math.floor(n / 200)}.${(n % 200) + 1}`)
    await dns.hosts({ [`prefill.${DOMAIN}`]: ['127.0.0.1'], [`decode.${DOMAIN}`]: many })
    const { until, gateway } = await start()
    await until(() => gateway.context.registry.views(0).length === 401)
    expect(await current!.metric('eldr_workers', { leg: 'decode' })).toBe(400)
  })
})
