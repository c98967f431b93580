/**
 * Slow and lossy paths between all machines, then random faults of all kinds. Afterwards nothing may be left
 * behind.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createRandom } from '../../../src/math/random.ts'
import type { Outcome } from './agent.ts'
import { Chaos } from './chaos.ts'
import { Cluster, GATEWAYS, SUBJECTS } from './cluster.ts'
import { NO_NAMESPACES } from './suite.ts'
import { ends, medianMs, note, notOk, Traffic } from './traffic.ts'
import { until } from './until.ts'
import { viewsAgree } from './views.ts'

/** Seed of the paths and faults; printed, so that a run can be repeated with ELDR_NETNS_SEED=N. */
const SEED = Number(process.env['ELDR_NETNS_SEED'] ?? Date.now() % 1_000_000)
/** Set ELDR_NETNS_SECONDS for a longer search. */
const CHAOS_MS = 1_000 * Number(process.env['ELDR_NETNS_SECONDS'] ?? 20)

describe.skipIf(NO_NAMESPACES)('everything across machines', () => {
  let cluster: Cluster
  beforeAll(async () => {
    // Default leases: a slow replica must not be considered dead.
    cluster = await Cluster.start({ policy: 'union', seed: String(SEED), replicas: {} })
  })
  afterAll(() => cluster?.close())

  it('slow and lossy paths only cost time', async () => {
    const { network } = cluster
    const ageNow = async () =>
      1_000 *
      Math.max(
        ...(await Promise.all(GATEWAYS.map(name => cluster.metric(name, 'eldr_replica_view_age_seconds')))),
      )
    const traffic = await Traffic.start(cluster)
    /** Outcomes of `count` requests, and the ages of the views meanwhile. */
    async function observe(count: number): Promise<{ outcomes: Outcome[]; agesMs: number[] }> {
      const outcomes: Outcome[] = []
      const agesMs: number[] = []
      while (outcomes.length < count) {
        outcomes.push(...(await traffic.next(1)))
        agesMs.push(await ageNow())
      }
      return { outcomes, agesMs: agesMs.sort((a, b) => a - b) }
    }
    const before = await observe(30)
    await network.everywhere({ delayMs: 35, jitterMs: 15, loss: 0.02 }, SUBJECTS)
    await traffic.next(1)
    const during = await observe(40)
    // A gateway publishes again after the store's reply: on these paths after at least 40 ms, 70 ms on
    // average.
    const median = (sorted: readonly number[]) => sorted[sorted.length >> 1]!
    expect(median(during.agesMs)).toBeGreaterThan(25)
    expect(during.agesMs.at(-1)).toBeLessThan(3_000)
    expect(await cluster.metric('gw1', 'eldr_replicas')).toBe(2)
    expect(notOk(await traffic.stop())).toEqual({})
    const agreeMs = await viewsAgree(cluster)
    for (const name of GATEWAYS) {
      expect(cluster.said(name)).not.toMatch(/considered dead|store unreachable|fails its health check/)
      expect(Object.values(await cluster.views(name)).map(({ state }) => state)).toEqual([
        'ready',
        'ready',
        'ready',
        'ready',
      ])
    }
    expect((await network.counts('d1', 'gw1')).lost).toBeGreaterThan(0)
    await cluster.quiet()
    await network.heal()
    note('35 ± 15 ms and 2 % lost', {
      requests: traffic.all.length,
      medianBeforeMs: medianMs(before.outcomes),
      medianDuringMs: medianMs(during.outcomes),
      ageBeforeMs: median(before.agesMs),
      ageDuringMs: median(during.agesMs),
      longestAgeMs: during.agesMs.at(-1),
      agreeMs,
    })
  })

  it('random faults leave nothing behind', async () => {
    process.stdout.write(`  random faults: ELDR_NETNS_SEED=${SEED}\n`)
    const traffic = await Traffic.start(cluster, { tokens: 80, lanesEach: 4 })
    await traffic.next(2)
    const chaos = new Chaos(cluster, createRandom(SEED))
    await chaos.run(CHAOS_MS)
    const healedMs = await chaos.heal()
    const all = await traffic.stop()
    // A connection of a client that was cut off may break, but no response may look complete without being
    // so.
    expect(all.filter(({ end }) => end === 'wrong')).toEqual([])
    await cluster.quiet()
    await until('both to have the same policy', async () => {
      const [a, b] = await Promise.all(
        GATEWAYS.map(
          async name =>
            [
              (await cluster.get(name, '/eldr/config')).routing.policy,
              (await cluster.get(name, '/ready')).replicas,
            ] as const,
        ),
      )
      return a![0] === b![0] && a![1].version === b![1].version && a![1].waiting + b![1].waiting === 0
    })
    const agreeMs = await viewsAgree(cluster)
    const after = await Traffic.start(cluster)
    const good = await after.next(25)
    expect(notOk([...good, ...(await after.stop())])).toEqual({})
    await cluster.quiet()
    await cluster.noKvConnections()
    note('everything', { steps: chaos.steps, healedMs, agreeMs, during: ends(all), after: ends(after.all) })
  })
})
