import type { Artifact } from '../fit/artifact.ts'
import { byLoad } from './by-load.ts'
import type { DecodePolicy, PolicyDescriptor } from './decode-policy.ts'

export interface DomainOptions {
  /** Share of each domain in the calibration requests; need not sum to 1. */
  readonly shares: readonly number[]
  readonly workers: number
}

/**
 * Workers are split over domains by calibration share; the least loaded worker of the request's domain is
 * picked (paper §6, baseline Domain). Requests have to be labelled: one without a label, or whose domain has
 * no worker now, goes by load.
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

export const DOMAIN = {
  name: 'domain',
  needs: ['labels'],
  reasons: ['domain'],
  herds: true,
  create: ({ artifact, workers }) => domain({ shares: domainShares(artifact), workers }),
} as const satisfies PolicyDescriptor

/** Calibration requests of each domain; empty if the artifact's trace has no domains. */
export function domainShares(artifact: Artifact | undefined): number[] {
  const domains = artifact?.calibration.domain
  if (artifact === undefined || domains === undefined) return []
  const shares = artifact.about.domains.map(() => 0)
  for (const index of domains) shares[index]!++
  return shares
}

/**
 * The domain of each worker, in blocks. Every domain with a share gets one worker while there are enough;
 * each of the rest goes to the domain furthest below its share.
 */
export function splitWorkers(shares: readonly number[], workers: number): number[] {
  const total = shares.reduce((sum, share) => sum + share, 0)
  if (!(total > 0)) return []
  const wanted = shares.map(share => (share / total) * workers)
  const assigned = shares.map(() => 0)
  for (let left = workers; left > 0; left--) {
    // Domains without a worker first, larger ones before smaller; then by the missing share.
    const need = (d: number) =>
      assigned[d] === 0 && wanted[d]! > 0 ? workers + wanted[d]! : wanted[d]! - assigned[d]!
    const next = assigned.reduce((best, _, d) => (need(d) > need(best) ? d : best), 0)
    assigned[next]!++
  }
  return assigned.flatMap((count, d) => Array.from({ length: count }, () => d))
}
