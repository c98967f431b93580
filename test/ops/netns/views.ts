/**
 * Whether gateways agree on what is under way: streams are held on one, and the other must see just those.
 */
import { expect } from 'vitest'
import { type Cluster, GATEWAYS } from './cluster.ts'
import { ends } from './traffic.ts'
import { until } from './until.ts'

const HELD = 4

/** In both directions; to be called without other traffic. @returns the longest that it took to be seen. */
export async function viewsAgree(cluster: Cluster): Promise<number> {
  let longestMs = 0
  for (const [at, name] of GATEWAYS.entries()) {
    const other = GATEWAYS[1 - at]!
    // They would go on for minutes: they end when they have been seen, and by the gateway's own limit if they
    // never are.
    const held = await cluster.client.streams({
      gateway: name,
      url: cluster.url(name),
      count: HELD,
      tokens: 10_000,
      patienceMs: 16_000,
    })
    let last = ''
    const tookMs = await until(
      `${other} to see what ${name} has`,
      async () => {
        const [own, seen] = await Promise.all([cluster.views(name), cluster.views(other)])
        const pairs = Object.keys(own).map(
          worker => [own[worker]!.inflight, seen[worker]!.inflightElsewhere] as const,
        )
        last = JSON.stringify(pairs)
        return (
          pairs.every(([mine, theirs]) => mine === theirs) &&
          pairs.reduce((sum, [mine]) => sum + mine, 0) === HELD
        )
      },
      10_000,
    ).catch((error: Error) => Promise.reject(new Error(`${error.message}: own and seen by worker ${last}`)))
    longestMs = Math.max(longestMs, tookMs)
    await held.leave()
    expect(ends(await held.ended)).toEqual({ 'left This operation was aborted': HELD })
  }
  return longestMs
}
