/** How well the requests of the last 15 minutes fit the artifact, judged by their signatures. */
import { COSINE_BINS, Histogram } from './histogram.ts'
import { TimeSlices } from './time-slices.ts'
import type { FitHealth } from './wire.ts'

const SLICE_MS = 15_000
const SLICES = 60

/** Reasons of decisions made without a signature or counts. */
const WITHOUT_SIGNATURE: ReadonlySet<string> = new Set(['no_signature', 'no_counts'])

export interface Decided {
  readonly reason: string
  readonly reject?: string
  readonly covered?: number
  /** Highest cosine to any centroid, if the policy compared. */
  readonly best?: number
}

class Slice {
  readonly reasons = new Map<string, number>()
  readonly rejects = new Map<string, number>()
  readonly best = new Histogram(COSINE_BINS)
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

  /** Ignores earlier similarities: a new artifact has other centroids. */
  forget(nowMs = Date.now()): void {
    this.#sinceMs = nowMs
  }

  /** `calibration`: quantiles of the calibration requests, from the artifact. */
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
        (total, [reason, count]) => total + (WITHOUT_SIGNATURE.has(reason) ? count : 0),
        0,
      ),
      reasons: Object.fromEntries(all.reasons),
      rejects: Object.fromEntries(all.rejects),
      covered: all.covered,
      coverage: all.covered > 0 ? all.coveredSum / all.covered : undefined,
      compared: all.best.count,
      quantiles: qs.map(({ q, value }) => ({ q, calibration: value, live: all.best.quantile(q) })),
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
