/**
 * Which requests are held out for evaluation. Prompts of a domain are ranked by their seeded hash and the first ones taken, so that the
 * place in the file does not matter and every domain gives its share. Prompts that occur twice stay together: what is evaluated was not learnt.
 */
import { createHash } from 'node:crypto'

export interface SplitInput {
  /** A request's prompt, by a hash that the same prompts share. */
  readonly keys: readonly string[]
  /** Index of its domain, or −1. */
  readonly domains: ArrayLike<number>
}

/** 1 for each request that is held out. */
export function holdOut({ keys, domains }: SplitInput, share: number, seed: number): Uint8Array {
  const held = new Uint8Array(keys.length)
  let [seen, taken] = [0, 0]
  for (const groups of groupsByDomain(keys, domains)) {
    // What rounding leaves of one domain goes over to the next, so that domains of two requests give some too.
    seen += groups.reduce((sum, { requests }) => sum + requests.length, 0)
    const wanted = Math.round(share * seen)
    const ranked = groups
      .map(group => ({ ...group, rank: rankOf(group.key, seed) }))
      .sort((a, b) => (a.rank < b.rank ? -1 : 1))
    for (const { requests } of ranked) {
      // A group that goes beyond is taken when that is nearer to what is wanted than to stop before it.
      if (taken + requests.length / 2 > wanted) continue
      for (const request of requests) held[request] = 1
      taken += requests.length
    }
  }
  return held
}

interface Group {
  readonly key: string
  readonly requests: number[]
}

/** Requests with the same prompt are one group, in the domain of the first of them. */
function groupsByDomain(keys: readonly string[], domains: ArrayLike<number>): Group[][] {
  const groups = new Map<string, Group>()
  const byDomain = new Map<number, Group[]>()
  keys.forEach((key, request) => {
    const known = groups.get(key)
    if (known !== undefined) return void known.requests.push(request)
    const group = { key, requests: [request] }
    groups.set(key, group)
    const domain = byDomain.get(domains[request]!)
    if (domain === undefined) byDomain.set(domains[request]!, [group])
    else domain.push(group)
  })
  return [...byDomain].sort(([a], [b]) => a - b).map(([, list]) => list)
}

function rankOf(key: string, seed: number): string {
  return createHash('sha256').update(`${seed}\n${key}`).digest('hex')
}
