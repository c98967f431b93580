/**
 * Slow and lossy paths between all machines, and then everything at once. Afterwards nothing may be left of
 * it.
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

/** Seed of the faults; printed, so that a run can be repeated with ELDR_NETNS_SEED=N. */
const SEED = Number(process.env['ELDR_NETNS_SEED'] ?? Date.now() % 1_000_000)
/** Longer to search for defects. */
const CHAOS_MS = 1_000 * Number(process.env['ELDR_NETNS_SECONDS'] ?? 20)

describe.skipIf(NO_NAMESPACES)('everything across machines', () => {
  let cluster: Cluster
  beforeAll(async () => {
    // Default leases: a slow gateway must not be taken for dead.
    cluster = await Cluster.start({ policy: 'union', seed: String(SEED), replicas: {} })
  })
  afterAll(() => cluster?.close())

  it('slow and lossy paths everywhere cost time and nothing else', async () => {
    const { network } = cluster
    const ageNow = async () =>
      1_000 *
      Math.max(
        ...(await Promise.all(GATEWAYS.map(name => cluster.metric(name, 'eldr_replica_view_age_seconds')))),
      )
    const traffic = await Traffic.start(cluster)
    /** So many answers, and how old the views were meanwhile. */
    async function lookedAt(count: number): Promise<{ outcomes: Outcome[]; agesMs: number[] }> {
      const outcomes: Outcome[] = []
      const agesMs: number[] = []
      while (outcomes.length < count) {
        outcomes.push(...(await traffic.next(1)))
        agesMs.push(await ageNow())
      }
      return { outcomes, agesMs: agesMs.sort((a, b) => a - b) }
    }
    const before = await lookedAt(30)
    await network.everywhere({ delayMs: 35, jitterMs: 15, loss: 0.02 }, SUBJECTS)
    await traffic.next(1)
    const during = await lookedAt(40)
    // A gateway speaks again when the store has answered: by these paths no sooner than after 40 ms, and 70
    // in the mean.
    const middle = (sorted: readonly number[]) => sorted[sorted.length >> 1]!
    expect(middle(during.agesMs)).toBeGreaterThan(25)
    expect(during.agesMs.at(-1)).toBeLessThan(3_000)
    expect(await cluster.metric('gw1', 'eldr_replicas')).toBe(2)
    expect(notOk(await traffic.stop())).toEqual({})
    const agreeMs = await viewsAgree(cluster)
    for (const name of GATEWAYS) {
      expect(cluster.said(name)).not.toMatch(/considered dead|unreachable|fails its health check/)
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
      ageBeforeMs: middle(before.agesMs),
      ageDuringMs: middle(during.agesMs),
      longestAgeMs: during.agesMs.at(-1),
      agreeMs,
    })
  })

  it('everything at once leaves nothing behind', async () => {
    process.stdout.write(`  everything at once: ELDR_NETNS_SEED=${SEED}\n`)
    const traffic = await Traffic.start(cluster, { tokens: 80, lanesEach: 4 })
    await traffic.next(2)
    const chaos = new Chaos(cluster, createRandom(SEED))
    await chaos.run(CHAOS_MS)
    const healedMs = await chaos.heal()
    const all = await traffic.stop()
    // A client that was cut off may see a broken connection, but never an incomplete response that looks
    // complete.
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
