/**
 * The slots of a switchback experiment: the whole system runs one treatment at a time, in slots of random
 * order, because requests share batches and a split by request would compare nothing. The gateway and the
 * simulator measure slots with this code.
 */
import type { Random } from './random.ts'
import { Reservoir } from './reservoir.ts'

/** A stream that has ended. Times in milliseconds. */
export interface EndedStream {
  /** Since its request arrived. */
  readonly ageMs: number
  /** Undefined if the response was not streamed. */
  readonly ttftMs?: number
  /** Mean time between its tokens; undefined with fewer than two. */
  readonly tpotMs?: number
  readonly tokens: number
}

export interface Percentiles {
  /** null without values. */
  readonly p50: number | null
  readonly p99: number | null
}

export interface SlotFigures {
  /** Length of the measured part. */
  readonly seconds: number
  /** Streams in the percentiles. A response that was not streamed has no times. */
  readonly streams: number
  readonly ttftMs: Percentiles
  readonly tpotMs: Percentiles
  readonly requestsPerSecond: number
  readonly outputTokensPerSecond: number
}

/** A minute at 1,600 requests per second; 1.6 MB for both times. */
const MAX_STREAMS = 100_000
const SHARES = [0.5, 0.99]

/**
 * Measures one slot. Its first part, the washout, is not measured: batches still hold requests that the
 * treatment before has placed. Times count for streams that end after the washout and whose request arrived
 * in this slot, so that a stream that ran under two treatments counts for neither. Throughput counts
 * everything that ends after the washout.
 */
export class SlotRecord {
  readonly #fromMs: number
  readonly #measuredFromMs: number
  readonly #ttft: Reservoir
  readonly #tpot: Reservoir
  #requests = 0
  #tokens = 0
  #streams = 0

  constructor(fromMs: number, washoutMs: number, uniform?: () => number) {
    this.#fromMs = fromMs
    this.#measuredFromMs = fromMs + washoutMs
    this.#ttft = new Reservoir(MAX_STREAMS, uniform)
    this.#tpot = new Reservoir(MAX_STREAMS, uniform)
  }

  ended({ ageMs, ttftMs, tpotMs, tokens }: EndedStream, nowMs: number): void {
    if (nowMs < this.#measuredFromMs) return
    this.#requests++
    this.#tokens += tokens
    if (nowMs - ageMs < this.#fromMs) return
    if (ttftMs !== undefined || tpotMs !== undefined) this.#streams++
    if (ttftMs !== undefined) this.#ttft.add(ttftMs)
    if (tpotMs !== undefined) this.#tpot.add(tpotMs)
  }

  figures(nowMs: number): SlotFigures {
    const seconds = Math.max(0, nowMs - this.#measuredFromMs) / 1000
    const perSecond = (count: number) => (seconds === 0 ? 0 : count / seconds)
    return {
      seconds,
      streams: this.#streams,
      ttftMs: percentilesOf(this.#ttft),
      tpotMs: percentilesOf(this.#tpot),
      requestsPerSecond: perSecond(this.#requests),
      outputTokensPerSecond: perSecond(this.#tokens),
    }
  }
}

function percentilesOf(reservoir: Reservoir): Percentiles {
  const [p50 = null, p99 = null] = reservoir.count === 0 ? [] : reservoir.quantiles(SHARES)
  return { p50, p99 }
}

/**
 * The treatment of each slot: blocks with one slot per treatment in random order. Differences within a block
 * cancel slow changes of traffic, and the random order keeps what remains of the slot before from favouring
 * one treatment.
 */
export function slotOrder<Treatment>(
  treatments: readonly Treatment[],
  blocks: number,
  random: Random,
): Treatment[] {
  return Array.from({ length: blocks }, () => shuffled(treatments, random)).flat()
}

function shuffled<T>(items: readonly T[], random: Random): T[] {
  const order = [...items]
  for (let last = order.length - 1; last > 0; last--) {
    const at = random.below(last + 1)
    ;[order[last], order[at]] = [order[at]!, order[last]!]
  }
  return order
}
