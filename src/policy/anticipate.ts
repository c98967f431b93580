/**
 * Deciding by loads that are a little old. Gateways that see each other's requests late all see the same worker with the fewest requests,
 * and all send theirs there until they hear of it: a herd, which then moves to the next worker. But what the others do unseen is no riddle:
 * they run the same policy on much the same view, so they have done what this gateway did. For every request that it has dispatched in as
 * long as its view is old, it supposes that each of the others has dispatched one to the same worker. Requests that are known are counted
 * as ever; what is supposed ends by itself when the view has caught up.
 *
 * docs/guides/scale.md shows what it is worth. It is for gateways that tell each other of their requests; one gateway alone has nothing unseen, and
 * of gateways that tell each other nothing all is unseen, for ever, which no supposing mends.
 */
import type { DecodePolicy } from './decode-policy.ts'

export interface UnseenOptions {
  /** How old the view of the others is, in what `nowMs` counts. May change; 0 switches it off. */
  readonly viewAgeMs: () => number
  /** Requests that the other gateways together dispatch for each of ours: their number, where requests come to all alike. */
  readonly perOwn: () => number
  readonly nowMs: () => number
}

export interface Unseen {
  /** Call for every request that this gateway dispatches, and for no other. */
  sent(worker: number): void
  /** Requests that others are supposed to have on a worker, besides those that are known. */
  on(worker: number): number
}

export function createUnseen({ viewAgeMs, perOwn, nowMs }: UnseenOptions): Unseen {
  /** The latest of ours, in order of time. */
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

/** The policy on loads with what is unseen added. Everything else of it is as it was. */
export function anticipating(policy: DecodePolicy, unseen: (worker: number) => number): DecodePolicy {
  return {
    ...policy,
    pick: (request, candidates, ctx) =>
      policy.pick(
        request,
        candidates.map(candidate => ({
          ...candidate,
          inflight: candidate.inflight + unseen(candidate.worker),
        })),
        ctx,
      ),
  }
}
