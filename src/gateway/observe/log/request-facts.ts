/**
 * What its line in the log, and its span, say of a request: gathered as it goes, in plain fields, since most requests have both. Of a
 * request that is split, workers are listed, tokens added, and of times the longest counts; the decision is the last.
 */
import type { DecodePlacement } from '../../routing/router.ts'

/** A list of workers in a line ends somewhere. */
const MOST_NAMED = 16

export interface LineHead {
  readonly reqId: string
  readonly traceId: string | undefined
  readonly route: string
  readonly outcome: string
  readonly status: number | undefined
}

export class RequestFacts {
  /** Parts that are served beside each other. */
  parts = 1
  promptTokens: number | undefined
  stream: boolean | undefined
  queueMs: number | undefined
  prefillMs: number | undefined
  routeMs: number | undefined
  /** Of performance.now(), when the first byte for the client came. */
  firstMs: number | undefined
  prefill: string | undefined
  decode: string | undefined
  policy: string | undefined
  reason: string | undefined
  similarity: number | undefined
  covered: number | undefined
  band: number | undefined
  outputTokens = 0
  retries = 0
  /** What the client was told, where the gateway itself had to say it. */
  code: string | undefined
  #betweenMs = 0
  #gaps = 0

  /** Which worker served a leg; of several tries the last. */
  served(leg: 'prefill' | 'decode', worker: string): void {
    const before = this[leg]
    if (before === undefined || this.parts === 1) this[leg] = worker
    else {
      const named = before.split(',')
      if (!named.includes(worker) && named.length < MOST_NAMED) this[leg] = `${before},${worker}`
    }
  }

  prefilled(worker: string, ms: number, promptTokens: number | undefined): void {
    this.served('prefill', worker)
    this.prefillMs = Math.max(this.prefillMs ?? 0, ms)
    // That of a part is not that of the whole.
    if (promptTokens !== undefined && this.parts === 1) this.promptTokens = promptTokens
  }

  decided({ dispatch, decision, policy, similarity, covered }: DecodePlacement, ms: number): void {
    this.served('decode', dispatch.worker.id)
    this.routeMs = Math.max(this.routeMs ?? 0, ms)
    this.policy = policy
    this.reason = decision.reason
    this.similarity = similarity
    this.covered = covered
    this.band = decision.band
  }

  firstByte(nowMs: number): void {
    this.firstMs ??= nowMs
  }

  /** A leg that gave tokens has ended. `ms`: from the first to the last of them. */
  generated(tokens: number, ms: number): void {
    this.outputTokens += tokens
    if (tokens < 2 || ms <= 0) return
    this.#betweenMs += ms
    this.#gaps += tokens - 1
  }

  /** Mean time between two tokens of a stream. */
  get tpotMs(): number | undefined {
    return this.#gaps === 0 ? undefined : this.#betweenMs / this.#gaps
  }

  /** Its line in the log: one literal, since an object of so many members that is put together of others is ten times as slow to print. */
  line({ reqId, traceId, route, outcome, status }: LineHead, startedMs: number, endedMs: number): object {
    const {
      firstMs,
      prefill,
      decode,
      policy,
      reason,
      promptTokens,
      outputTokens,
      parts,
      retries,
      stream,
      code,
    } = this
    return {
      reqId,
      traceId,
      route,
      outcome,
      status,
      seconds: Number(((endedMs - startedMs) / 1000).toFixed(4)),
      prefill,
      decode,
      policy,
      reason,
      stream,
      promptTokens,
      outputTokens: firstMs === undefined ? undefined : outputTokens,
      parts: parts === 1 ? undefined : parts,
      retries: retries === 0 ? undefined : retries,
      code,
      queueMs: micro(this.queueMs),
      prefillMs: micro(this.prefillMs),
      routeMs: micro(this.routeMs),
      ttftMs: micro(firstMs === undefined ? undefined : firstMs - startedMs),
      tpotMs: micro(this.tpotMs),
    }
  }
}

/** Rounded to a microsecond. */
function micro(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : Math.round(ms * 1_000) / 1_000
}
