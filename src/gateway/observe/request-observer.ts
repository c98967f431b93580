/**
 * Events of a request. The flow reports each event once; listeners turn events into metrics, spans, log lines
 * and headers, and decide nothing. A listener implements only the events it needs, so one that is off costs
 * nothing.
 */
import type { WorkerSpec } from '../../cluster/worker.ts'
import type { ClientRequest } from '../http/client-request.ts'
import type { Exchange } from '../http/exchange.ts'
import type { RefusalCode } from '../http/refusal.ts'
import type { Route } from '../http/routes.ts'
import type { DecisionRecord } from './decision-log.ts'
import { RequestFacts } from './request-facts.ts'

/** How a request ended. */
export const OUTCOMES = [
  'ok',
  'refused',
  'worker_refused',
  'failed',
  'broken',
  'client_gone',
  'client_stalled',
  'timeout',
] as const
export type Outcome = (typeof OUTCOMES)[number]

/** `relay`: a route that is passed to one worker unchanged. */
export type Leg = 'prefill' | 'decode' | 'relay'

/** W3C trace context that a worker receives in place of the client's. */
export interface TraceHeaders {
  readonly traceparent: string
  readonly tracestate: string | undefined
}

export interface ObservedRequest {
  readonly exchange: Exchange
  readonly route: Route
  /** False if the client brought no valid key. */
  readonly isAuthorized: boolean
}

interface AttemptOptions {
  readonly leg: Leg
  readonly worker: WorkerSpec
  /** 1 for the first attempt. */
  readonly number: number
  readonly requestId: string
  /** Whether its response goes to the client. */
  readonly servesClient: boolean
  readonly streamed: boolean
  /** The policy that placed it, for a decode worker. */
  readonly policy?: string | undefined
  readonly method?: 'GET' | 'POST'
  /** It goes on with a stream that another worker began. */
  readonly resumes?: boolean
}

/**
 * One attempt of one leg on one worker. The flow updates its counts; times are those of performance.now().
 */
export class Attempt {
  readonly leg: Leg
  readonly worker: WorkerSpec
  readonly number: number
  readonly requestId: string
  readonly servesClient: boolean
  readonly streamed: boolean
  readonly policy: string | undefined
  readonly method: 'GET' | 'POST'
  readonly resumes: boolean
  readonly startedMs = performance.now()
  firstByteMs = 0
  lastTokenMs = 0
  /** Set before listeners are notified of the end. */
  endedMs = 0
  tokens = 0
  /** Set by tracing. */
  trace: TraceHeaders | undefined

  constructor(options: AttemptOptions) {
    this.leg = options.leg
    this.worker = options.worker
    this.number = options.number
    this.requestId = options.requestId
    this.servesClient = options.servesClient
    this.streamed = options.streamed
    this.policy = options.policy
    this.method = options.method ?? 'POST'
    this.resumes = options.resumes ?? false
  }

  /** Mean time between tokens; undefined without two streamed tokens. */
  get tokenMs(): number | undefined {
    return this.streamed && this.tokens > 1
      ? (this.lastTokenMs - this.firstByteMs) / (this.tokens - 1)
      : undefined
  }
}

export type AttemptEnd =
  /** The client has the response. */
  | { readonly kind: 'served'; readonly status: number }
  | {
      readonly kind: 'handed_off'
      readonly promptTokens: number | undefined
      /** Changes when the worker restarts. */
      readonly engineId: string | undefined
    }
  /** The prefill worker rejected the request as invalid. */
  | { readonly kind: 'refused'; readonly status: number }
  | {
      readonly kind: 'failed'
      readonly cause: string
      readonly why: string
      readonly status?: number | undefined
    }
  /** The client left, or the request timed out. */
  | { readonly kind: 'stopped' }
  /** The gateway itself failed. */
  | { readonly kind: 'fault' }

/** A decode decision. */
export interface Decided {
  readonly requestId: string
  readonly askedMs: number
  readonly decidedMs: number
  /** When prefill's response arrived; undefined without prefill. */
  readonly prefilledMs: number | undefined
  /** Undefined if no decode worker accepts requests. */
  readonly placement: DecidedPlacement | undefined
}

/**
 * Where the next turn of a conversation went. `kept`: to the worker that has its KV cache. `alone`: there,
 * without a remote prefill. `moved`: elsewhere.
 */
export const CONVERSATION_STEPS = ['kept', 'alone', 'moved'] as const
export type ConversationStep = (typeof CONVERSATION_STEPS)[number]

export interface DecidedPlacement {
  readonly worker: WorkerSpec
  readonly policy: string
  readonly decision: { readonly reason: string; readonly band?: number }
  readonly similarity: number | undefined
  readonly covered: number | undefined
  readonly conversation: ConversationStep | undefined
  readonly record?: DecisionRecord
}

/** A broken stream goes on with another worker. */
export interface Resumed {
  /** Why it broke. */
  readonly cause: string
  /** From the break to the next event for the client. */
  readonly pauseMs: number
}

export interface Admitted {
  readonly askedMs: number
  /** Whether the request waited in the queue. */
  readonly queued: boolean
  /** Set if it was not admitted. */
  readonly error: unknown
}

export interface RequestListener {
  /** The request was admitted or refused. */
  admitted?(how: Admitted): void
  /** The body has been read; it is sent as `parts` requests. */
  read?(request: ClientRequest, parts: number): void
  /** Length of a prompt, once per prompt however often it is prefilled. */
  promptCounted?(tokens: number): void
  decided?(decided: Decided): void
  attemptStarted?(attempt: Attempt): void
  /** First byte of a successful response for the client. */
  firstByte?(attempt: Attempt): void
  /** `attempt.tokens` has grown by `count`. */
  tokens?(attempt: Attempt, count: number): void
  attemptEnded?(attempt: Attempt, end: AttemptEnd): void
  retried?(leg: Leg, cause: string): void
  resumed?(how: Resumed): void
  /** A stream broke for good. `why`: one of `NOT_RESUMED`. */
  notResumed?(why: string): void
  /** A hand-off was not used: too old, or freed because its client had left. */
  handoffUnused?(why: 'expired' | 'released'): void
  /** `code`: the gateway's own error that the client received. */
  ended?(outcome: Outcome, code: RefusalCode | undefined): void
}

export interface RequestObserver {
  /** @returns undefined if this observer does not need the request. */
  observe(request: ObservedRequest, events: RequestEvents): RequestListener | undefined
}

/**
 * The events of one request, reported to all its listeners. A listener that throws is reported to `failed`;
 * the request goes on.
 */
export class RequestEvents {
  /** Trace context for workers where an attempt has none of its own. Set by tracing. */
  trace: TraceHeaders | undefined
  /** Complete when listeners are notified of the end. */
  readonly facts = new RequestFacts()
  readonly #listeners: RequestListener[] = [this.facts]
  readonly #tokenListeners: RequestListener[] = []
  readonly #failed: (error: unknown) => void

  constructor(
    observers: readonly RequestObserver[],
    request: ObservedRequest,
    failed: (error: unknown) => void,
  ) {
    this.#failed = failed
    for (const observer of observers) {
      try {
        const listener = observer.observe(request, this)
        if (listener === undefined) continue
        this.#listeners.push(listener)
        if (listener.tokens !== undefined) this.#tokenListeners.push(listener)
      } catch (error) {
        failed(error)
      }
    }
  }

  admitted(how: Admitted): void {
    this.#notify(listener => listener.admitted?.(how))
  }

  read(request: ClientRequest, parts: number): void {
    this.#notify(listener => listener.read?.(request, parts))
  }

  promptCounted(tokens: number): void {
    this.#notify(listener => listener.promptCounted?.(tokens))
  }

  decided(decided: Decided): void {
    this.#notify(listener => listener.decided?.(decided))
  }

  attemptStarted(attempt: Attempt): void {
    this.#notify(listener => listener.attemptStarted?.(attempt))
  }

  firstByte(attempt: Attempt): void {
    attempt.firstByteMs = attempt.lastTokenMs = performance.now()
    this.#notify(listener => listener.firstByte?.(attempt))
  }

  /** Called for each read from the worker's socket. */
  tokens(attempt: Attempt, count: number, nowMs: number): void {
    attempt.tokens += count
    attempt.lastTokenMs = nowMs
    for (const listener of this.#tokenListeners) {
      try {
        listener.tokens!(attempt, count)
      } catch (error) {
        this.#failed(error)
      }
    }
  }

  attemptEnded(attempt: Attempt, end: AttemptEnd): void {
    attempt.endedMs = performance.now()
    this.#notify(listener => listener.attemptEnded?.(attempt, end))
  }

  retried(leg: Leg, cause: string): void {
    this.#notify(listener => listener.retried?.(leg, cause))
  }

  resumed(how: Resumed): void {
    this.#notify(listener => listener.resumed?.(how))
  }

  notResumed(why: string): void {
    this.#notify(listener => listener.notResumed?.(why))
  }

  handoffUnused(why: 'expired' | 'released'): void {
    this.#notify(listener => listener.handoffUnused?.(why))
  }

  ended(outcome: Outcome, code: RefusalCode | undefined): void {
    this.#notify(listener => listener.ended?.(outcome, code))
  }

  #notify(tell: (listener: RequestListener) => void): void {
    for (const listener of this.#listeners) {
      try {
        tell(listener)
      } catch (error) {
        this.#failed(error)
      }
    }
  }
}
