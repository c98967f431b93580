/** How well live requests fit the artifact: what decisions say of their signatures, over the last quarter of an hour. */
import { COSINE_BINS, Tally } from './tally.ts'
import { TimeSlices } from './time-slices.ts'
import type { FitHealth } from './wire.ts'

const SLICE_MS = 15_000
const SLICES = 60

/** Nothing usable was known of the request's experts. */
const WITHOUT: ReadonlySet<string> = new Set(['no_signature', 'no_counts'])

export interface Decided {
  readonly reason: string
  readonly reject?: string
  readonly covered?: number
  /** Best cosine to any centroid, where the policy looked. */
  readonly best?: number
}

class Slice {
  readonly reasons = new Map<string, number>()
  readonly rejects = new Map<string, number>()
  readonly best = new Tally(COSINE_BINS)
  coveredSum = 0
  covered = 0
}

export class FitWatch {
  readonly #slices = new TimeSlices(SLICE_MS, SLICES, () => new Slice())
  readonly #startedMs = Date.now()
  #sinceMs = 0

  decided({ reason, reject, covered, best }: Decided, nowMs = Date.now()): void {
    const slice = this.#slices.at(nowMs)
    slice.reasons.set(reason, (slice.reasons.get(reason) ?? 0) + 1)
    if (reject !== undefined) slice.rejects.set(reject, (slice.rejects.get(reject) ?? 0) + 1)
    if (best !== undefined) slice.best.add(best)
    if (covered === undefined) return
    slice.coveredSum += covered
    slice.covered++
  }

  /** Another artifact has other centroids: what was compared with the old ones says nothing of it. */
  forget(nowMs = Date.now()): void {
    this.#sinceMs = nowMs
  }

  /** `calibration`: quantiles of the artifact's own requests. */
  health(
    calibration: readonly { readonly q: number; readonly value: number }[],
    nowMs = Date.now(),
  ): FitHealth {
    const all = new Slice()
    const slices = this.#slices.since(nowMs)
    for (const { fromMs, slice } of slices) {
      addTo(all.reasons, slice.reasons)
      addTo(all.rejects, slice.rejects)
      all.coveredSum += slice.coveredSum
      all.covered += slice.covered
      if (fromMs + SLICE_MS > this.#sinceMs) all.best.addAll(slice.best)
    }
    const decisions = sum(all.reasons)
    const qs = calibration.length > 0 ? calibration : QUANTILES.map(q => ({ q, value: undefined }))
    return {
      seconds: Math.min((SLICE_MS * SLICES) / 1000, Math.round((nowMs - this.#startedMs) / 1000)),
      decisions,
      withoutSignature: [...all.reasons].reduce(
        (total, [reason, count]) => total + (WITHOUT.has(reason) ? count : 0),
        0,
      ),
      reasons: Object.fromEntries(all.reasons),
      rejects: Object.fromEntries(all.rejects),
      covered: all.covered,
      ...(all.covered > 0 && { coverage: all.coveredSum / all.covered }),
      compared: all.best.count,
      quantiles: qs.map(({ q, value }) => {
        const live = all.best.quantile(q)
        return { q, ...(value !== undefined && { calibration: value }), ...(live !== undefined && { live }) }
      }),
    }
  }
}

const QUANTILES = [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99]

function addTo(all: Map<string, number>, some: ReadonlyMap<string, number>): void {
  for (const [key, count] of some) all.set(key, (all.get(key) ?? 0) + count)
}

function sum(counts: ReadonlyMap<string, number>): number {
  return [...counts.values()].reduce((total, count) => total + count, 0)
}
