/**
 * A store on another machine that is cut off (one way or both), killed or full. Requests must not be
 * affected.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { until } from './until.ts'
import { Cluster, GATEWAYS, LEASE_MS, type Machine } from './cluster.ts'
import { NO_NAMESPACES } from './suite.ts'
import { medianMs, note, notOk, of, Traffic } from './traffic.ts'
import { viewsAgree } from './views.ts'

describe.skipIf(NO_NAMESPACES)('the store across machines', () => {
  let cluster: Cluster
  beforeAll(async () => {
    cluster = await Cluster.start({ policy: 'jsq' })
  })
  afterAll(() => cluster?.close())

  const replicasOf = async (name: (typeof GATEWAYS)[number]) => (await cluster.get(name, '/ready')).replicas
  const elsewhere = async (name: (typeof GATEWAYS)[number]) =>
    Object.values(await cluster.views(name)).reduce(
      (sum, { inflightElsewhere }) => sum + inflightElsewhere,
      0,
    )

  /** Cuts the given paths between gw1 and the store, and restores them. */
  async function cutStore(what: string, paths: readonly (readonly [Machine, Machine])[]): Promise<void> {
    const { network } = cluster
    const traffic = await Traffic.start(cluster)
    const before = await traffic.next(15)
    await until(
      'both to see each other',
      async () => (await elsewhere('gw1')) > 0 && (await elsewhere('gw2')) > 0,
    )
    for (const [from, to] of paths) await network.rule(from, to, { cut: true })
    const forgottenMs = await until('gw2 to forget gw1', async () => (await replicasOf('gw2')).replicas === 1)
    // Counted from its last message, at most a third of the lease before the cut, which may have been in
    // transit.
    expect(forgottenMs).toBeLessThan(2 * LEASE_MS)
    await until('gw1 to report it', async () => (await replicasOf('gw1')).store === 'down')
    const ready = await cluster.get('gw1', '/ready')
    expect(ready).toMatchObject({
      status: 'ready',
      replicas: { store: 'down', reason: expect.stringMatching(/^(silent|unreachable)$/) as string },
    })
    expect((await replicasOf('gw2')).store).toBe('up')
    await until('gw1 to forget gw2', async () => (await replicasOf('gw1')).replicas === 1)
    expect([await elsewhere('gw1'), await elsewhere('gw2')]).toEqual([0, 0])
    const during = await traffic.next(15)
    expect((await network.counts(...paths[0]!)).cut).toBeGreaterThan(0)
    await network.heal()
    const healedMs = await cluster.together()
    await until(
      'both to see each other again',
      async () => (await elsewhere('gw1')) > 0 && (await elsewhere('gw2')) > 0,
    )
    expect(notOk(await traffic.stop())).toEqual({})
    // Compared with the other gateway at the same time: a busy machine slows both. The store's timeout is a
    // second.
    const [hereMs, otherMs] = [medianMs(of('gw1', during)), medianMs(of('gw2', during))]
    expect(hereMs).toBeLessThan(otherMs + 400)
    await cluster.quiet()
    note(what, {
      requests: traffic.all.length,
      forgottenMs,
      healedMs,
      medianBeforeMs: medianMs(of('gw1', before)),
      medianDuringMs: hereMs,
      medianOfOtherMs: otherMs,
    })
  }

  it('that is cut off from a gateway delays no request, and is reconnected', async () => {
    await cutStore('store cut off', [
      ['gw1', 'store'],
      ['store', 'gw1'],
    ])
    // Streams are held for longer than this.
    expect(await viewsAgree(cluster)).toBeLessThan(10_000)
    await cluster.quiet()
  })

  it('that is cut off in one direction is treated the same', async () => {
    expect(await cluster.change('gw1', 'PUT', '/eldr/policy', { policy: 'union' })).toBe(200)
    await until(
      'gw2 to follow',
      async () => (await cluster.get('gw2', '/eldr/config')).routing.policy === 'union',
    )
    await cutStore('gw1 to store cut', [['gw1', 'store']])
    await cutStore('store to gw1 cut', [['store', 'gw1']])
    await viewsAgree(cluster)
  })

  it('that restarts empty gets the changes back, and requests are served meanwhile', async () => {
    const traffic = await Traffic.start(cluster)
    await traffic.next(5)
    await cluster.killStore()
    await until('both to report it', async () =>
      (await Promise.all(GATEWAYS.map(replicasOf))).every(
        ({ store, replicas }) => store === 'down' && replicas === 1,
      ),
    )
    await traffic.next(10)
    await cluster.startStore()
    const healedMs = await cluster.together()
    await until(
      'the policy to be back',
      async () => (await cluster.watch.store(cluster.storeUrl, 'HGET', 'eldr:changes', 'policy')) === 'union',
    )
    await until(
      'both to see each other',
      async () => (await elsewhere('gw1')) > 0 && (await elsewhere('gw2')) > 0,
    )
    expect(notOk(await traffic.stop())).toEqual({})
    note('store killed', { requests: traffic.all.length, healedMs })
    await cluster.quiet()
  })

  it('that is full delivers loads, and stores changes when it has room', async () => {
    const tauOf = async (name: (typeof GATEWAYS)[number]) =>
      (await cluster.get(name, '/eldr/config')).routing.tau
    await cluster.watch.store(cluster.storeUrl, 'CONFIG', 'SET', 'maxmemory-policy', 'noeviction')
    await cluster.watch.store(cluster.storeUrl, 'CONFIG', 'SET', 'maxmemory', '1')
    const traffic = await Traffic.start(cluster)
    await traffic.next(5)
    await until(
      'both to see each other',
      async () => (await elsewhere('gw1')) > 0 && (await elsewhere('gw2')) > 0,
    )
    expect(await cluster.change('gw1', 'PUT', '/eldr/policy', { tau: 0.37 })).toBe(200)
    await until(
      'the change to be refused',
      async () => (await cluster.metric('gw1', 'eldr_replica_ignored_total', { reason: 'refused' })) > 0,
    )
    expect((await replicasOf('gw1')).waiting).toBe(1)
    expect(await tauOf('gw2')).not.toBe(0.37)
    await cluster.watch.store(cluster.storeUrl, 'CONFIG', 'SET', 'maxmemory', '0')
    const takenMs = await until('gw2 to follow', async () => (await tauOf('gw2')) === 0.37)
    expect(notOk(await traffic.stop())).toEqual({})
    note('store full', { requests: traffic.all.length, takenMs })
    await cluster.quiet()
    await viewsAgree(cluster)
  })
})
