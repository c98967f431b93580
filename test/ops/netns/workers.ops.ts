/**
 * Workers and clients that become unreachable under traffic: started streams end with an error, others are
 * retried.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { Cluster, GATEWAYS, type GatewayName } from './cluster.ts'
import { NO_NAMESPACES } from './suite.ts'
import { ends, note, notOk, of, Traffic, unexpected } from './traffic.ts'
import { until } from './until.ts'

describe.skipIf(NO_NAMESPACES)('workers across machines', () => {
  let cluster: Cluster
  beforeAll(async () => {
    cluster = await Cluster.start({ policy: 'union' })
  })
  afterAll(() => cluster?.close())
  afterEach(() => cluster?.network.heal())

  const stateOf = async (name: GatewayName, worker: string) => (await cluster.views(name))[worker]!.state
  const usedBy = (name: GatewayName, worker: string) =>
    until(`${name} to use ${worker}`, async () => (await cluster.views(name))[worker]!.inflight > 0)

  it('a decode worker that one gateway cannot reach is used by the other, and later by both', async () => {
    const { network } = cluster
    const traffic = await Traffic.start(cluster, { tokens: 60 })
    await traffic.next(3)
    const held = await cluster.client.streams({
      gateway: 'gw1',
      url: cluster.url('gw1'),
      count: 4,
      tokens: 250,
      timeoutMs: 16_000,
    })
    await usedBy('gw1', 'd1')
    await network.both('gw1', 'd1', { cut: true })
    const outMs = await until('gw1 to take it out', async () => (await stateOf('gw1', 'd1')) !== 'ready')
    // Streams on it end within another betweenTokensMs, as its tickets show.
    await until('its streams to end', async () => (await cluster.views('gw1'))['d1']!.inflight === 0)
    // A breaker that opened first may be half-open; health checks still fail.
    await until('its health check to fail', async () => (await stateOf('gw1', 'd1')) === 'unhealthy')
    const without = await traffic.next(6)
    expect(notOk(without.filter(({ gateway }) => gateway === 'gw2'))).toEqual({})
    expect([await stateOf('gw2', 'd1'), (await cluster.get('gw1', '/ready')).decode]).toEqual(['ready', 1])
    await usedBy('gw2', 'd1')
    expect((await network.counts('gw1', 'd1')).cut).toBeGreaterThan(0)
    await network.heal()
    const backMs = await until('gw1 to have it back', async () => (await stateOf('gw1', 'd1')) === 'ready')
    await usedBy('gw1', 'd1')
    const all = await traffic.stop()
    const here = [...of('gw1', all), ...(await held.ended)]
    // Streams that had started on it; one that was dispatched but had not started was retried on the other
    // worker.
    expect(ends(await held.ended)).toMatchObject({
      ok: expect.any(Number) as number,
      'error ELDR_STREAM_STALLED': expect.any(Number) as number,
    })
    expect(unexpected(all)).toEqual({})
    expect(notOk(of('gw2', all))).toEqual({})
    for (const { code } of here.filter(({ end }) => end === 'error'))
      expect(code).toMatch(/^ELDR_(STREAM_STALLED|STREAM_BROKEN)$/)
    note('gw1 and d1 cut', { outMs, backMs, gw1: ends(here), gw2: ends(of('gw2', all)) })
    await cluster.quiet()
  })

  it('a decode worker that cannot fetch KV blocks is avoided by both, and the blocks are freed', async () => {
    const { network } = cluster
    expect(await cluster.change('gw2', 'PUT', '/eldr/policy', { policy: 'jsq' })).toBe(200)
    await until(
      'gw1 to follow',
      async () => (await cluster.get('gw1', '/eldr/config')).routing.policy === 'jsq',
    )
    const traffic = await Traffic.start(cluster)
    await traffic.next(3)
    const retriesBefore = await Promise.all(
      GATEWAYS.map(name => cluster.metric(name, 'eldr_retries_total', { leg: 'decode' })),
    )
    for (const prefill of ['p1', 'p2'] as const) await network.both(prefill, 'd1', { cut: true })
    await until('blocks to wait', async () => (await cluster.state('d1')).stats.fetching > 0)
    const openMs = await until('both breakers to open', async () =>
      (await Promise.all(GATEWAYS.map(name => stateOf(name, 'd1')))).every(state => state === 'open'),
    )
    await traffic.next(8)
    const all = [...(await traffic.stop())]
    expect(unexpected(all)).toEqual({})
    for (const { code } of all.filter(({ end }) => end === 'error'))
      expect(code).toMatch(/^ELDR_(DECODE_FAILED|DECODE_TIMEOUT)$/)
    expect((await network.counts('d1', 'p1')).cut + (await network.counts('d1', 'p2')).cut).toBeGreaterThan(0)
    const retries = await Promise.all(
      GATEWAYS.map(name => cluster.metric(name, 'eldr_retries_total', { leg: 'decode' })),
    )
    expect(retries.every((count, at) => count > retriesBefore[at]!)).toBe(true)
    // While it is still cut off: blocks that are never fetched are freed by their lease.
    const freedMs = await cluster.nothingLeft()
    await network.heal()
    const again = await Traffic.start(cluster)
    const backMs = await until('both to have it back', async () =>
      (await Promise.all(GATEWAYS.map(name => stateOf(name, 'd1')))).every(state => state === 'ready'),
    )
    await Promise.all(GATEWAYS.map(name => usedBy(name, 'd1')))
    await again.next(5)
    expect(unexpected(await again.stop())).toEqual({})
    note('prefill and d1 cut', { openMs, freedMs, backMs, during: ends(all), after: ends(again.all) })
    await cluster.quiet()
  })

  it('clients that become unreachable during streams are disconnected and released', async () => {
    const { network } = cluster
    // Small send buffers: otherwise the kernel would buffer megabytes, which is minutes of tokens, before a
    // write stalls.
    for (const name of GATEWAYS) network.sysctl(name, 'net.ipv4.tcp_wmem', '4096 8192 16384')
    const stalled = () =>
      Promise.all(
        GATEWAYS.map(name => cluster.metric(name, 'eldr_requests_total', { outcome: 'client_stalled' })),
      )
    const before = await stalled()
    const streams = await Promise.all(
      GATEWAYS.map(gateway =>
        cluster.client.streams({
          gateway,
          url: cluster.url(gateway),
          count: 2,
          tokens: 20_000,
          timeoutMs: 11_000,
        }),
      ),
    )
    for (const name of GATEWAYS) await network.both('client', name, { cut: true })
    const noticedMs = await until('both to notice', async () =>
      (await stalled()).every((count, at) => count === before[at]! + 2),
    )
    await cluster.nothingLeft()
    await network.heal()
    for (const { ended } of streams)
      for (const { end } of await ended) expect(['broken', 'hung']).toContain(end)
    note('client cut off', { noticedMs })
    const traffic = await Traffic.start(cluster)
    await traffic.next(4)
    expect(notOk(await traffic.stop())).toEqual({})
    await cluster.quiet()
  })
})
