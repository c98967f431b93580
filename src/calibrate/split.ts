/**
 * Chooses the requests that are held out for evaluation. Prompts of a domain are ranked by a seeded hash and
 * the first ones taken, so that their position in the file does not matter and every domain contributes its
 * share. Equal prompts stay together, so that no evaluated prompt is also in the calibration.
 */
import { createHash } from 'node:crypto'

export interface SplitInput {
  /** Hash of each request's prompt; equal for equal prompts. */
  readonly keys: readonly string[]
  /** Domain index of each request, or −1. */
  readonly domains: ArrayLike<number>
}

/** Returns 1 for each held-out request. */
export function holdOut({ keys, domains }: SplitInput, share: number, seed: number): Uint8Array {
  const held = new Uint8Array(keys.length)
  let [seen, taken] = [0, 0]
  for (const groups of groupsByDomain(keys, domains)) {
    // Carry the rounding error over to the next domain, so that domains of two requests contribute too.
    seen += groups.reduce((sum, { requests }) => sum + requests.length, 0)
    const wanted = Math.round(share * seen)
    const ranked = groups
      .map(group => ({ ...group, rank: rankOf(group.key, seed) }))
      .sort((a, b) => (a.rank < b.rank ? -1 : 1))
    for (const { requests } of ranked) {
      // Take a group that exceeds the target if that is closer to the target than leaving it out.
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
