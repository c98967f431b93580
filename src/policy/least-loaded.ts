import type { Candidate } from './decode-policy.ts'

/**
 * The candidate with the fewest requests in flight. Ties go to the highest `prefer`: callers pass a random
 * number or a similarity, because always taking the first would send every request to an idle cluster to the
 * same worker. If similarities may tie too, `random` decides. Candidates are not empty.
 */
export function leastLoaded<C extends Pick<Candidate, 'inflight'>>(
  candidates: readonly C[],
  prefer: (candidate: C) => number,
  random?: () => number,
): C {
  let best = candidates[0]!
  let bestPreference = prefer(best)
  let equals = 1
  for (let at = 1; at < candidates.length; at++) {
    const candidate = candidates[at]!
    if (candidate.inflight > best.inflight) continue
    const preference = prefer(candidate)
    const same = candidate.inflight === best.inflight
    if (same && preference < bestPreference) continue
    equals = same && preference === bestPreference ? equals + 1 : 1
    if (equals > 1 && !(random !== undefined && random() * equals < 1)) continue
    best = candidate
    bestPreference = preference
  }
  return best
}
