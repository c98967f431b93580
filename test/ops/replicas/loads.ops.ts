/** Loads that replicas share through a real store. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { RENEWALS } from '../../../src/gateway/scale/replicas/publisher.ts'
import { heldStream, type Stage, startStage, until } from './gateways.ts'
import { type Store, startStore } from './store.ts'

let store: Store
let stage: Stage
beforeAll(async () => {
  store = await startStore()
})
afterAll(() => store.close())
beforeEach(async () => {
  await store.ask('FLUSHALL')
  stage = await startStage()
})
afterEach(() => stage.close())

describe.each(['jsq', 'union'])('replicas under %s', policy => {
  const routing = { routing: { policy } }

  it('see each other’s requests while they run and none afterwards, separate from their own', async () => {
    const [a, b, c] = await Promise.all([
      stage.replica(store.url, routing),
      stage.replica(store.url, routing),
      stage.replica(store.url, routing),
    ])
    const all = [a, b, c]
    await until('three to know of each other', async () =>
      (await Promise.all(all.map(({ get }) => get('/ready')))).every(
        ({ replicas }) => replicas.replicas === 3,
      ),
    )
    const streams = await Promise.all([heldStream(a, stage), heldStream(a, stage), heldStream(b, stage)])
    await until(
      'views',
      () => a.inflight().elsewhere === 1 && b.inflight().elsewhere === 2 && c.inflight().elsewhere === 3,
    )
    expect([a, b, c].map(({ inflight }) => inflight().own)).toEqual([2, 1, 0])
    const { workers } = await c.get('/eldr/workers')
    expect(
      workers.reduce(
        (sum: number, { inflightElsewhere }: { inflightElsewhere: number }) => sum + inflightElsewhere,
        0,
      ),
    ).toBe(3)
    expect(workers.every(({ inflight }: { inflight: number }) => inflight === 0)).toBe(true)
    // The next request goes to the less loaded worker, although this replica has sent nothing yet.
    const loads = c.gateway.context.registry.candidates('decode', performance.now())
    const next = await heldStream(c, stage)
    const least = loads.toSorted((one, other) => one.inflight - other.inflight)[0]!
    const taken = c.gateway.context.registry
      .views(0)
      .find(({ inflight, spec }) => inflight === 1 && spec.role === 'decode')!.spec.id
    // Union considers experts too.
    expect(policy === 'jsq' ? taken : least.id).toBe(least.id)
    for (const { release, text } of [...streams, next]) {
      release()
      expect(await text()).toContain('[DONE]')
    }
    await until('nothing anywhere', () =>
      all.every(({ inflight }) => inflight().own + inflight().elsewhere === 0),
    )
    for (const { gateway, metric } of all) {
      const { sums } = gateway.context.router.table.policy
      if (policy === 'union')
        await until('sums at zero', () => [0, 1].every(worker => sums!.of(worker).every(sum => sum === 0)))
      expect(await metric('eldr_replica_store_up')).toBe(1)
      expect(await metric('eldr_replicas')).toBe(3)
      expect(await metric('eldr_replica_ignored_total', { reason: 'malformed' })).toBe(0)
      expect(await metric('eldr_replica_bytes_total', { direction: 'in' })).toBeGreaterThan(0)
    }
  })
})

describe('the expected experts of union', () => {
  it('agree between replicas to within 0.02, also after a change of policy', async () => {
    const [a, b] = await Promise.all([stage.replica(store.url), stage.replica(store.url)])
    const streams = [await heldStream(a, stage), await heldStream(a, stage), await heldStream(a, stage)]
    const expected = (replica: typeof a, worker: number) =>
      replica.gateway.context.router.table.policy.expectedExperts?.(worker)
    const same = () =>
      [0, 1].every(worker => {
        const [one, other] = [expected(a, worker), expected(b, worker)]
        return (
          one !== undefined &&
          other !== undefined &&
          one.length === other.length &&
          one.every((chance, cell) => Math.abs(chance - other[cell]!) < 0.02)
        )
      })
    // B does not know the shape of the model before its first hand-off.
    await (await heldStream(b, stage).then(stream => (stream.release(), stream))).text()
    await until('the same expectations', same)
    expect(expected(a, 0)!.some(chance => chance > 0.1) || expected(a, 1)!.some(chance => chance > 0.1)).toBe(
      true,
    )
    // Both create a new policy, which needs all rows again.
    await a.change('PUT', '/eldr/policy', { policy: 'jsq' })
    await until('jsq on both', () => [a, b].every(({ gateway }) => gateway.control.policy === 'jsq'))
    await b.change('PUT', '/eldr/policy', { policy: 'union' })
    await until('union on both', () => [a, b].every(({ gateway }) => gateway.control.policy === 'union'))
    await until('the same expectations again', same)
    for (const { release, text } of streams) {
      release()
      await text()
    }
    await until('sums at zero', () =>
      [a, b].every(({ gateway }) =>
        [0, 1].every(worker => gateway.context.router.table.policy.sums!.of(worker).every(sum => sum === 0)),
      ),
    )
  })
})

describe('a replica', () => {
  it('that stops cleanly is removed immediately', async () => {
    const [a, b] = await Promise.all([
      stage.replica(store.url),
      stage.replica(store.url, { replicas: { leaseMs: 60_000 }, server: { port: 0, shutdownGraceMs: 1 } }),
    ])
    const { response } = await heldStream(b, stage)
    await until('the request to be seen', () => a.inflight().elsewhere === 1)
    const stopped = b.gateway.stop()
    // The lease is much longer than the wait, so the replica has said goodbye.
    await until(
      'it to be gone',
      async () => a.inflight().elsewhere === 0 && (await a.metric('eldr_replicas')) === 1,
    )
    await response.text().catch(() => undefined)
    await stopped
    expect(a.lines.some(({ msg }) => msg === 'replicas: replica left')).toBe(true)
  })

  it('that runs without changes renews its lease', async () => {
    // A lease that a machine which is held up for a moment still renews in time.
    const patient = { replicas: { leaseMs: 6_000 } }
    const [a, b] = await Promise.all([stage.replica(store.url, patient), stage.replica(store.url, patient)])
    const { release, text } = await heldStream(b, stage)
    await until('the request to be seen', () => a.inflight().elsewhere === 1)
    // Without changes b sends renewals only. One more than fit into a lease: the first lease has ended.
    const sent = async () => (await b.metric('eldr_replica_messages_total', { direction: 'out' }))!
    const enough = (await sent()) + RENEWALS + 1
    await until('the lease to be renewed', async () => (await sent()) >= enough)
    expect(a.inflight().elsewhere).toBe(1)
    expect(a.lines.filter(({ msg }) => String(msg).includes('considered dead'))).toEqual([])
    release()
    await text()
    await until('it to end', () => a.inflight().elsewhere === 0)
  })
})
