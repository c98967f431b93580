/**
 * What a run measures, in memory that does not grow with it. Requests are measured when their number lies in the measured part of the
 * run, steps and decisions when they fall between the first measured arrival and the first arrival after the measured ones.
 */
import type { Decision } from '../policy/decode-policy.ts'
import type { DecodeWorker } from './decode-worker.ts'
import { createHistogram, type Histogram, record } from './histogram.ts'
import type { RequestPool } from './requests.ts'

/**
 * What a request must keep to count as good; what is not given is not asked. The time per token is the client's: from prefill's token (or
 * from the arrival, where prefill is not simulated) to the last, so that waiting for a place on a decode worker counts.
 */
export interface Slo {
  readonly ttftMs?: number
  readonly tpotMs?: number
}

export interface Histograms {
  readonly ttftUs: Histogram
  readonly tpotUs: Histogram
  /** Between tokens of a request, the gap after prefill's token included. */
  readonly itlUs: Histogram
  /** From arrival to the last token. */
  readonly latencyUs: Histogram
}

export class Metrics {
  readonly histograms: Histograms = {
    ttftUs: createHistogram(),
    tpotUs: createHistogram(),
    itlUs: createHistogram(),
    latencyUs: createHistogram(),
  }
  readonly reasons = new Map<string, number>()
  /** Of all requests, measured or not. */
  arrived = 0
  ended = 0
  /** Of the measured ones. */
  endedMeasured = 0
  good = 0
  /** The measured span. */
  fromUs = NaN
  toUs = NaN
  /** In it: tokens that decode made, Σ batch·active, Σ batch·fullest, Σ batch², steps, and requests that ended. */
  tokens = 0
  activeTokens = 0
  fullestTokens = 0
  batchTokens = 0
  steps = 0
  endedInSpan = 0
  /** Σ of the fullest decode worker's in-flight count, and of the mean one's, over decisions. */
  largestInflight = 0
  meanInflight = 0
  /** ∫ requests in flight dt. */
  inflightUs = 0
  /** [maxBatch + 1] of steps with so many requests. */
  readonly stepsOfBatch: Float64Array
  readonly activeOfBatch: Float64Array
  /** [decode workers] */
  readonly tokensOfWorker: Float64Array

  readonly #pool: RequestPool
  readonly #slo: Slo
  /** Numbers of the first measured request and of the first after them. */
  readonly #first: number
  readonly #end: number
  #inflightSinceUs = 0

  constructor(
    pool: RequestPool,
    workers: number,
    maxBatch: number,
    measured: { readonly first: number; readonly end: number },
    slo: Slo,
  ) {
    this.#pool = pool
    this.#slo = slo
    this.#first = measured.first
    this.#end = measured.end
    this.stepsOfBatch = new Float64Array(maxBatch + 1)
    this.activeOfBatch = new Float64Array(maxBatch + 1)
    this.tokensOfWorker = new Float64Array(workers)
  }

  get #measuring(): boolean {
    return this.arrived > this.#first && this.arrived <= this.#end
  }

  /** Call when the request is in the pool. */
  requestArrived(nowUs: number): void {
    this.#countInflight(nowUs, this.#pool.inflight - 1)
    if (this.arrived === this.#first) this.fromUs = nowUs
    if (this.arrived === this.#end) this.toUs = nowUs
    this.arrived++
  }

  decided({ reason }: Decision, inflight: Int32Array): void {
    if (!this.#measuring) return
    this.reasons.set(reason, (this.reasons.get(reason) ?? 0) + 1)
    let [most, sum] = [0, 0]
    for (const count of inflight) {
      if (count > most) most = count
      sum += count
    }
    this.largestInflight += most
    this.meanInflight += sum / inflight.length
  }

  firstToken(slot: number, nowUs: number): void {
    this.#pool.firstTokenUs[slot] = nowUs
    this.#pool.lastTokenUs[slot] = nowUs
    if (this.#isMeasured(slot)) record(this.histograms.ttftUs, nowUs - this.#pool.arrivalUs[slot]!)
  }

  /** Call before the worker lets go of the requests that the step ended. */
  stepEnded(decoder: number, worker: DecodeWorker, nowUs: number): void {
    const { batch, joined, slots } = worker
    for (let i = batch - joined; i < batch; i++) this.#firstTokenOnWorker(slots[i]!, nowUs)
    if (!this.#measuring) return
    // All others had their last token when the step began.
    record(this.histograms.itlUs, worker.stepUs, batch - joined)
    this.steps++
    this.tokens += batch
    this.activeTokens += batch * worker.active
    this.fullestTokens += batch * worker.fullest
    this.batchTokens += batch * batch
    this.stepsOfBatch[batch]!++
    this.activeOfBatch[batch]! += worker.active
    this.tokensOfWorker[decoder]! += batch
  }

  /** Call before the request leaves the pool. */
  requestEnded(slot: number, nowUs: number): void {
    this.#countInflight(nowUs, this.#pool.inflight)
    this.ended++
    if (this.#measuring) this.endedInSpan++
    if (!this.#isMeasured(slot)) return
    const { arrivalUs, firstTokenUs, firstDecodeUs, decodeTokens } = this.#pool
    this.endedMeasured++
    record(this.histograms.latencyUs, nowUs - arrivalUs[slot]!)
    const tpotUs = (nowUs - firstDecodeUs[slot]!) / (decodeTokens[slot]! - 1)
    if (decodeTokens[slot]! > 1) record(this.histograms.tpotUs, tpotUs)
    // What a request does not have (prefill not simulated, no token of decode) it does not miss.
    const late = firstTokenUs[slot]! - arrivalUs[slot]! > (this.#slo.ttftMs ?? Infinity) * 1000
    const beganUs = Number.isNaN(firstTokenUs[slot]!) ? arrivalUs[slot]! : firstTokenUs[slot]!
    const slow =
      decodeTokens[slot]! > 0 &&
      (nowUs - beganUs) / decodeTokens[slot]! > (this.#slo.tpotMs ?? Infinity) * 1000
    if (!late && !slow) this.good++
  }

  runEnded(nowUs: number): void {
    this.#countInflight(nowUs, this.#pool.inflight)
    if (Number.isNaN(this.toUs)) this.toUs = nowUs
  }

  #firstTokenOnWorker(slot: number, nowUs: number): void {
    const { firstDecodeUs, lastTokenUs } = this.#pool
    if (Number.isNaN(firstDecodeUs[slot]!)) firstDecodeUs[slot] = nowUs
    if (this.#measuring && !Number.isNaN(lastTokenUs[slot]!))
      record(this.histograms.itlUs, nowUs - lastTokenUs[slot]!)
  }

  #isMeasured(slot: number): boolean {
    const index = this.#pool.index[slot]!
    return index >= this.#first && index < this.#end
  }

  /** `inflight`: how many there were since the last change. */
  #countInflight(nowUs: number, inflight: number): void {
    if (this.#measuring) this.inflightUs += inflight * (nowUs - this.#inflightSinceUs)
    this.#inflightSinceUs = nowUs
  }
}
