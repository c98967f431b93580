/**
 * Machines with different clocks: gateways 12 s apart, workers 40 s, and a store that returns an hour behind.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { clockEnv } from './clock.ts'
import { Cluster, GATEWAYS, type GatewayName, LEASE_MS } from './cluster.ts'
import { NO_NAMESPACES } from './suite.ts'
import { note, notOk, Traffic } from './traffic.ts'
import { until } from './until.ts'
import { viewsAgree } from './views.ts'

const SHIFT_SECONDS = { gw1: 7, gw2: -5, p1: 20, d1: -20 } as const

describe.skipIf(NO_NAMESPACES)('clocks that differ across machines', () => {
  let cluster: Cluster
  beforeAll(async () => {
    cluster = await Cluster.start({
      policy: 'union',
      env: Object.fromEntries(
        Object.entries(SHIFT_SECONDS).map(([name, seconds]) => [name, clockEnv(seconds)]),
      ),
    })
  })
  afterAll(() => cluster?.close())

  const routingOf = async (name: GatewayName) => (await cluster.get(name, '/eldr/config')).routing
  const versionOf = async (name: GatewayName): Promise<number> =>
    (await cluster.get(name, '/ready')).replicas.version

  it.each(GATEWAYS)('are in effect: decisions and log lines of %s have its own time', async gateway => {
    const shiftMs = SHIFT_SECONDS[gateway] * 1_000
    const beforeMs = Date.now()
    const { ended } = await cluster.client.streams({
      gateway,
      url: cluster.url(gateway),
      count: 1,
      tokens: 3,
      timeoutMs: 10_000,
    })
    expect(notOk(await ended)).toEqual({})
    const afterMs = Date.now()
    const [decision] = (await cluster.get(gateway, '/eldr/decisions?limit=1')).decisions as {
      timeMs: number
      request: string
    }[]
    const lineOf = () =>
      cluster
        .said(gateway)
        .split('\n')
        .find(text => text.includes(decision!.request))
    await until('its line in the log', () => lineOf() !== undefined)
    const line = JSON.parse(lineOf()!) as { time: string }
    for (const timeMs of [decision!.timeMs, Date.parse(line.time)]) {
      expect(timeMs).toBeGreaterThanOrEqual(beforeMs + shiftMs - 50)
      // The line is written after the last byte, which the client may already have.
      expect(timeMs).toBeLessThanOrEqual(afterMs + shiftMs + 1_000)
    }
    note(`clock of ${gateway}`, {
      decisionAheadMs: decision!.timeMs - beforeMs,
      logAheadMs: Date.parse(line.time) - beforeMs,
    })
  })

  it('do not affect leases and views', async () => {
    const { network } = cluster
    const agreeMs = await viewsAgree(cluster)
    const traffic = await Traffic.start(cluster)
    await traffic.next(8)
    // A lease compared with another machine's clock would have expired immediately.
    for (const name of GATEWAYS) expect(cluster.said(name)).not.toContain('considered dead')
    await network.both('gw1', 'store', { cut: true })
    const forgottenMs = await until(
      'gw2 to forget gw1',
      async () => (await cluster.get('gw2', '/ready')).replicas.replicas === 1,
    )
    expect(forgottenMs).toBeGreaterThan(LEASE_MS / 3)
    expect(forgottenMs).toBeLessThan(2 * LEASE_MS)
    await network.heal()
    const healedMs = await cluster.together()
    await traffic.next(5)
    expect(notOk(await traffic.stop())).toEqual({})
    for (const name of GATEWAYS) expect(await cluster.metric(name, 'eldr_leases_missed_total')).toBe(0)
    note('clocks', { requests: traffic.all.length, agreeMs, forgottenMs, healedMs })
    await cluster.quiet()
  })

  it('do not affect the order of changes, nor does a store that returns an hour behind', async () => {
    const follow = (name: GatewayName, policy: string) =>
      until(`${name} to have ${policy}`, async () => (await routingOf(name)).policy === policy)
    expect(await cluster.change('gw1', 'PUT', '/eldr/policy', { policy: 'power_of_two' })).toBe(200)
    await follow('gw2', 'power_of_two')
    // By the gateways' clocks this change would be 12 s older.
    expect(await cluster.change('gw2', 'PUT', '/eldr/policy', { policy: 'round_robin' })).toBe(200)
    await follow('gw1', 'round_robin')
    expect(
      await Promise.all(
        GATEWAYS.map((name, at) => cluster.change(name, 'PUT', '/eldr/policy', { tau: 0.2 + at / 10 })),
      ),
    ).toEqual([200, 200])
    await until('both to agree', async () => {
      const [a, b] = await Promise.all(
        GATEWAYS.map(async name => [
          (await routingOf(name)).tau,
          await versionOf(name),
          (await cluster.get(name, '/ready')).replicas.waiting,
        ]),
      )
      return a![0] !== 0.1 && a![2] === 0 && a!.join() === b!.join()
    })
    // libfaketime does not work with Redis, whose allocator reads the time while the library starts. So the
    // store keeps its clock, and its version is set an hour ahead, as if its clock had been wrong and were
    // right after the restart.
    const aheadMs = Date.now() + 3_600_000
    await cluster.watch.store(cluster.storeUrl, 'HSET', 'eldr:changes', 'version', String(aheadMs))
    await until('both to have read it', async () =>
      (await Promise.all(GATEWAYS.map(versionOf))).every(version => version === aheadMs),
    )
    await cluster.killStore()
    await until('both to report it', async () =>
      (await Promise.all(GATEWAYS.map(name => cluster.get(name, '/ready')))).every(
        ({ replicas }) => replicas.store === 'down',
      ),
    )
    await cluster.startStore()
    await cluster.together()
    expect(await cluster.change('gw2', 'PUT', '/eldr/policy', { policy: 'jsq' })).toBe(200)
    await follow('gw1', 'jsq')
    expect(await versionOf('gw1')).toBeGreaterThan(aheadMs)
    await viewsAgree(cluster)
    await cluster.quiet()
  })
})
