/**
 * Colours of domains, the same in every table, chart and legend of the page. With more than 24 domains the
 * rarest share a neutral colour, because more colours cannot be told apart.
 */
import type { FitSummary } from '../fit/summary.ts'
import { shortName } from './fit-words.ts'
import type { LegendEntry, Swatch } from './legend.ts'
import { many, whole } from './numbers.ts'

export interface DomainGroups {
  readonly groups: readonly DomainGroup[]
  /** Colour group of a domain; −1 for the neutral colour. */
  of(domain: number): number
}

export interface DomainGroup {
  readonly label: string
  readonly group: number
  readonly requests: number
}

export const MAX_GROUPS = 24

export function domainGroups({ source, clusters }: FitSummary): DomainGroups {
  const requests = source.domains.map((_, domain) =>
    clusters.reduce((sum, cluster) => sum + (cluster.domains[domain] ?? 0), 0),
  )
  const present = source.domains.map((_, domain) => domain).filter(domain => requests[domain]! > 0)
  const byVolume = present.toSorted((a, b) => requests[b]! - requests[a]! || a - b)
  const kept =
    present.length <= MAX_GROUPS ? present : byVolume.slice(0, MAX_GROUPS - 1).sort((a, b) => a - b)
  const colour = new Map(kept.map((domain, group) => [domain, group]))
  const groups = kept.map((domain, group) => ({
    label: shortName(source.domains[domain]!),
    group,
    requests: requests[domain]!,
  }))
  const rest = present.filter(domain => !colour.has(domain))
  if (rest.length > 0) {
    const together = rest.reduce((sum, domain) => sum + requests[domain]!, 0)
    groups.push({ label: many(rest.length, 'other domain'), group: -1, requests: together })
  }
  return { groups, of: domain => colour.get(domain) ?? -1 }
}

/** Legend with the requests of each group. */
export function domainLegend({ groups }: DomainGroups, kind: 'marker' | 'bar'): LegendEntry[] {
  return groups.map(({ label, group, requests }) => ({
    label,
    note: whole(requests),
    swatch: { kind, group } satisfies Swatch,
  }))
}
