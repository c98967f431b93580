/**
 * Checks that gateways agree on requests in flight: streams are held on one, and the other must see exactly
 * those.
 */
import { expect } from 'vitest'
import { type Cluster, GATEWAYS } from './cluster.ts'
import { ends } from './traffic.ts'
import { until } from './until.ts'

const HELD = 4

/**
 * In both directions. Call it without other traffic. Returns the longest time until the streams were seen.
 */
export async function viewsAgree(cluster: Cluster): Promise<number> {
  let longestMs = 0
  for (const [at, name] of GATEWAYS.entries()) {
    const other = GATEWAYS[1 - at]!
    // Long streams: they are cancelled when they have been seen, or end by the gateway's own limit.
    const held = await cluster.client.streams({
      gateway: name,
      url: cluster.url(name),
      count: HELD,
      tokens: 10_000,
      timeoutMs: 16_000,
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
