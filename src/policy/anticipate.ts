/**
 * Decisions on stale loads. Gateways that see each other's requests late all see the same least loaded
 * worker, and all send their requests there until they hear of it: a herd, which then moves to the next
 * worker. But the unseen requests can be estimated: the others run the same policy on almost the same view,
 * so they did what this gateway did. For every request that it dispatched within the age of its view, it
 * assumes that each of the others dispatched one to the same worker. Known requests are counted as usual; the
 * estimate expires by itself when the view has caught up.
 *
 * docs/guides/scale.md has measurements. It is for gateways that share their requests. A single gateway has
 * no unseen requests, and for gateways that share nothing, everything stays unseen, which no estimate can
 * fix.
 */
import type { Candidate, DecodePolicy } from './decode-policy.ts'

export interface UnseenOptions {
  /** Age of the view of the others, in the unit of `nowMs`. May change; 0 turns the estimate off. */
  readonly viewAgeMs: () => number
  /**
   * Requests that all other gateways dispatch per request of this one: their number, if load is spread
   * evenly.
   */
  readonly perOwn: () => number
  readonly nowMs: () => number
}

export interface Unseen {
  /** Call for every request that this gateway dispatches, and for no other. */
  sent(worker: number): void
  /** Estimated requests of other gateways on a worker, besides the known ones. */
  on(worker: number): number
}

export function createUnseen({ viewAgeMs, perOwn, nowMs }: UnseenOptions): Unseen {
  /** Recent requests of this gateway, by time. */
  let recent: { readonly worker: number; readonly atMs: number }[] = []
  let gone = 0
  const sentTo = new Map<number, number>()

  function forget(): void {
    for (const since = nowMs() - viewAgeMs(); gone < recent.length && recent[gone]!.atMs <= since; gone++) {
      const { worker } = recent[gone]!
      sentTo.set(worker, sentTo.get(worker)! - 1)
    }
    if (gone < 1_024) return
    recent = recent.slice(gone)
    gone = 0
  }
  return {
    sent(worker) {
      forget()
      recent.push({ worker, atMs: nowMs() })
      sentTo.set(worker, (sentTo.get(worker) ?? 0) + 1)
    },
    on(worker) {
      forget()
      return perOwn() * (sentTo.get(worker) ?? 0)
    },
  }
}

/**
 * The policy on loads with the unseen requests added, each with the mean prompt of the known ones. Everything
 * else is unchanged.
 */
export function anticipating(policy: DecodePolicy, unseen: (worker: number) => number): DecodePolicy {
  return {
    ...policy,
    pick(request, candidates, ctx) {
      const meanTokens = meanTokensOf(candidates)
      const expected = candidates.map(candidate => {
        const more = unseen(candidate.worker)
        const tokens = candidate.tokens === undefined ? undefined : candidate.tokens + more * meanTokens
        return { ...candidate, inflight: candidate.inflight + more, tokens }
      })
      return policy.pick(request, expected, ctx)
    },
  }
}

/** Prompt tokens per request, over the candidates whose tokens are known; 0 if there are none. */
function meanTokensOf(candidates: readonly Candidate[]): number {
  let [requests, total] = [0, 0]
  for (const { inflight, tokens } of candidates) {
    if (tokens === undefined) continue
    requests += inflight
    total += tokens
  }
  return requests > 0 ? total / requests : 0
}
