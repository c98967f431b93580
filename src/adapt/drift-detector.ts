/**
 * Notices when live requests no longer resemble the calibration. Each request's best cosine to a centroid is
 * turned into its rank among the calibration requests, from 0 to 1: about 0.5 on average while the artifact
 * fits, near 0 if it does not. A one-sided CUSUM sums how far ranks lie below `TOLERATED`, and starts again
 * whenever the sum falls to 0; that moment is the estimate of when the change began. A second sum, of how far
 * ranks lie above `RECOVERED`, ends the drift when requests resemble the calibration again.
 */
export interface Quantile {
  readonly q: number
  readonly value: number
}

/**
 * A mean rank below this adds up to an alarm. A domain of the calibration that is alone for a while may have
 * a mean rank of 0.2; traffic of another kind has one of 0.05 (docs/evidence/adapt.md).
 */
const TOLERATED = 0.15
/** An alarm takes about 150 requests of other traffic. */
const ALARM = 15
/**
 * Higher than `TOLERATED`, so that traffic between the two does not raise and clear the alarm in turn.
 * Matched traffic, with a mean of 0.5, clears it after about 60 requests.
 */
const RECOVERED = 0.25
const CLEAR = 15
/** Follows about the last 200 requests. */
const WEIGHT = 0.005

export class DriftDetector {
  readonly #quantiles: readonly Quantile[]
  #sum = 0
  #recovery = 0
  #sinceMs: number | undefined
  #mean: number | undefined
  #isDrifting = false

  /** `quantiles`: of the best cosines of calibration requests, ascending. */
  constructor(quantiles: readonly Quantile[]) {
    this.#quantiles = quantiles
  }

  /** Stays true until requests resemble the calibration again, or there is another artifact. */
  get isDrifting(): boolean {
    return this.#isDrifting
  }

  /** When the change began; undefined without one. */
  get sinceMs(): number | undefined {
    return this.#isDrifting ? this.#sinceMs : undefined
  }

  /** Mean rank of recent requests among the calibration requests; undefined before the first. */
  get meanRank(): number | undefined {
    return this.#mean
  }

  /** What this request changes: it raises the alarm, or ends the drift. */
  add(best: number, atMs: number): 'drift' | 'recovered' | undefined {
    const rank = rankOf(best, this.#quantiles)
    this.#mean = this.#mean === undefined ? rank : this.#mean + WEIGHT * (rank - this.#mean)
    if (this.#isDrifting) {
      this.#recovery = Math.max(0, this.#recovery + rank - RECOVERED)
      if (this.#recovery < CLEAR) return undefined
      this.#isDrifting = false
      this.#sum = 0
      return 'recovered'
    }
    if (this.#sum === 0) this.#sinceMs = atMs
    this.#sum = Math.max(0, this.#sum + TOLERATED - rank)
    if (this.#sum < ALARM) return undefined
    this.#isDrifting = true
    this.#recovery = 0
    return 'drift'
  }
}

/** Share of the calibration requests with a lower value, linear between the known quantiles. */
export function rankOf(value: number, quantiles: readonly Quantile[]): number {
  if (!(value > (quantiles[0]?.value ?? Infinity))) return 0
  for (let at = 1; at < quantiles.length; at++) {
    const [low, high] = [quantiles[at - 1]!, quantiles[at]!]
    if (value <= high.value)
      return low.q + ((high.q - low.q) * (value - low.value)) / (high.value - low.value)
  }
  return 1
}
