import { byLoad } from './by-load.ts'
import type { DecodePolicy } from './decode-policy.ts'

export interface DomainOptions {
  /** Share of each domain in the calibration requests; need not sum to 1. */
  readonly shares: readonly number[]
  readonly workers: number
}

/**
 * Workers split over domains by their calibration share, the least loaded inside (paper §6, the baseline Domain). It needs somebody to
 * label requests; one without a label, or whose workers are all away, goes by load.
 */
export function domain({ shares, workers }: DomainOptions): DecodePolicy {
  const domainOf = splitWorkers(shares, workers)
  return {
    name: 'domain',
    pick(request, candidates, ctx) {
      const own =
        request.domain === undefined
          ? []
          : candidates.filter(({ worker }) => domainOf[worker] === request.domain)
      return own.length === 0 ? byLoad(candidates, ctx, 'no_domain') : byLoad(own, ctx, 'domain')
    },
  }
}

/**
 * The domain of each worker, in blocks. Every domain with a share gets one worker while there are enough; the rest go one by one to the
 * domain that is furthest below its share.
 */
export function splitWorkers(shares: readonly number[], workers: number): number[] {
  const total = shares.reduce((sum, share) => sum + share, 0)
  if (!(total > 0)) return []
  const wanted = shares.map(share => (share / total) * workers)
  const given = shares.map(() => 0)
  for (let left = workers; left > 0; left--) {
    // A domain without a worker comes before one with, the larger first; then by what is missing.
    const need = (d: number) =>
      given[d] === 0 && wanted[d]! > 0 ? workers + wanted[d]! : wanted[d]! - given[d]!
    const next = given.reduce((best, _, d) => (need(d) > need(best) ? d : best), 0)
    given[next]!++
  }
  return given.flatMap((count, d) => Array.from({ length: count }, () => d))
}
