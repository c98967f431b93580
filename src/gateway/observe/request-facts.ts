/**
 * Facts of a request for its log line and its span, in plain fields because most requests need both. For a
 * request split into parts: all workers, the sum of tokens, the longest of each time and the last decision.
 */
import type { ClientRequest } from '../http/client-request.ts'
import type { RefusalCode } from '../http/refusal.ts'
import type {
  Admitted,
  Attempt,
  AttemptEnd,
  ConversationStep,
  Decided,
  Outcome,
  RequestListener,
  Resumed,
} from './request-observer.ts'

const MAX_WORKERS_NAMED = 16

export interface LineHead {
  readonly reqId: string
  readonly traceId: string | undefined
  readonly route: string
  readonly outcome: string
  readonly status: number | undefined
}

export class RequestFacts implements RequestListener {
  parts = 1
  promptTokens: number | undefined
  stream: boolean | undefined
  queueMs: number | undefined
  prefillMs: number | undefined
  routeMs: number | undefined
  /** Time of the first byte for the client, by performance.now(). */
  firstMs: number | undefined
  prefill: string | undefined
  decode: string | undefined
  policy: string | undefined
  reason: string | undefined
  similarity: number | undefined
  covered: number | undefined
  band: number | undefined
  conversation: ConversationStep | undefined
  outputTokens = 0
  retries = 0
  resumes = 0
  /** The longest pause of a resumed stream. */
  pauseMs: number | undefined
  /** Why the stream broke for good. */
  notResumedFor: string | undefined
  /** The error that the gateway itself returned. */
  code: RefusalCode | undefined
  #betweenMs = 0
  #gaps = 0

  admitted({ askedMs, queued }: Admitted): void {
    if (queued) this.queueMs = performance.now() - askedMs
  }

  read({ promptTokens, stream, whole }: ClientRequest, parts: number): void {
    this.promptTokens = promptTokens
    this.stream = stream
    if (!whole) this.parts = parts
  }

  attemptStarted({ leg, servesClient, worker }: Attempt): void {
    if (servesClient) this.#addWorker(leg === 'relay' ? 'decode' : leg, worker.id)
  }

  decided({ askedMs, decidedMs, placement }: Decided): void {
    if (placement === undefined) return
    const { worker, decision, policy, similarity, covered, conversation } = placement
    this.#addWorker('decode', worker.id)
    this.routeMs = Math.max(this.routeMs ?? 0, decidedMs - askedMs)
    this.policy = policy
    this.reason = decision.reason
    this.similarity = similarity
    this.covered = covered
    this.band = decision.band
    this.conversation = conversation
  }

  firstByte({ leg, firstByteMs }: Attempt): void {
    if (leg !== 'relay') this.firstMs ??= firstByteMs
  }

  attemptEnded(attempt: Attempt, end: AttemptEnd): void {
    if (end.kind === 'handed_off') this.#prefilled(attempt, end.promptTokens)
    else if (attempt.servesClient && attempt.leg !== 'relay') this.#generated(attempt)
  }

  retried(): void {
    this.retries++
  }

  resumed({ pauseMs }: Resumed): void {
    this.resumes++
    this.pauseMs = Math.max(this.pauseMs ?? 0, pauseMs)
  }

  notResumed(why: string): void {
    this.notResumedFor ??= why
  }

  ended(_: Outcome, code: RefusalCode | undefined): void {
    this.code = code
  }

  /** Mean time between two tokens of a stream. */
  get tpotMs(): number | undefined {
    return this.#gaps === 0 ? undefined : this.#betweenMs / this.#gaps
  }

  /** One literal: serializing an object of this size that was merged from others takes ten times as long. */
  line({ reqId, traceId, route, outcome, status }: LineHead, startedMs: number, endedMs: number): object {
    const {
      firstMs,
      prefill,
      decode,
      policy,
      reason,
      conversation,
      promptTokens,
      outputTokens,
      parts,
      retries,
      resumes,
      notResumedFor: notResumed,
      stream,
      code,
    } = this
    return {
      reqId,
      traceId,
      route,
      outcome,
      status,
      seconds: Math.round((endedMs - startedMs) * 10) / 10_000,
      prefill,
      decode,
      policy,
      reason,
      conversation,
      stream,
      promptTokens,
      outputTokens: firstMs === undefined ? undefined : outputTokens,
      parts: parts === 1 ? undefined : parts,
      retries: retries === 0 ? undefined : retries,
      resumes: resumes === 0 ? undefined : resumes,
      notResumed,
      code,
      queueMs: micro(this.queueMs),
      prefillMs: micro(this.prefillMs),
      routeMs: micro(this.routeMs),
      ttftMs: micro(firstMs === undefined ? undefined : firstMs - startedMs),
      tpotMs: micro(this.tpotMs),
      pauseMs: micro(this.pauseMs),
    }
  }

  /** Keeps the last worker of a leg; for a request in parts, all of them. */
  #addWorker(leg: 'prefill' | 'decode', worker: string): void {
    const before = this[leg]
    if (before === undefined || this.parts === 1) {
      this[leg] = worker
      return
    }
    const named = before.split(',')
    if (!named.includes(worker) && named.length < MAX_WORKERS_NAMED) this[leg] = `${before},${worker}`
  }

  #prefilled({ worker, startedMs, endedMs }: Attempt, promptTokens: number | undefined): void {
    this.#addWorker('prefill', worker.id)
    this.prefillMs = Math.max(this.prefillMs ?? 0, endedMs - startedMs)
    // A part knows only its own prompt.
    if (promptTokens !== undefined && this.parts === 1) this.promptTokens = promptTokens
  }

  #generated({ tokens, streamed, firstByteMs, lastTokenMs }: Attempt): void {
    this.outputTokens += tokens
    const betweenMs = lastTokenMs - firstByteMs
    if (!streamed || tokens < 2 || betweenMs <= 0) return
    this.#betweenMs += betweenMs
    this.#gaps += tokens - 1
  }
}

/** Rounded to a microsecond. */
function micro(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : Math.round(ms * 1_000) / 1_000
}
