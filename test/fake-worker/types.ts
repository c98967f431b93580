/**
 * Options and observations of a fake worker. The worker itself is plain JavaScript, so that it also runs as a
 * process.
 */

/** Routed-expert counts in a prefill response; without them a hand-off has no `eldr` key. */
export interface CountsShape {
  readonly layers: number
  readonly experts: number
  readonly topK: number
  /** Prompt tokens that the counts cover; default: those of the prompt. */
  readonly tokens?: number
  /** Requests cycle through this many different counts. */
  readonly variants?: number
  readonly seed?: number
}

export interface FakeWorkerOptions {
  /** Requests of the other leg are served and counted as `misdirected`. */
  readonly role?: 'prefill' | 'decode' | 'both'
  /** Hand-off as vLLM has it (the default), or as test/gateway/push-engine.ts does. */
  readonly protocol?: 'vllm' | 'push'
  readonly host?: string
  readonly port?: number
  readonly model?: string
  /**
   * Time of a prefill, before the first token of a decode, and between its tokens. 0: as fast as possible.
   */
  readonly prefillMs?: number
  readonly firstTokenMs?: number
  readonly gapMs?: number
  /** Sends ids with `return_token_ids`, and goes on after the tokens of a response in a prompt of ids. */
  readonly tokenIds?: boolean
  /** Tokens of a response whose request sets no limit. */
  readonly tokens?: number
  /** A shape, or a function that returns the `eldr` object of a request: valid, invalid or undefined. */
  readonly counts?: CountsShape | ((request: ReceivedRequest) => unknown)
  /**
   * For a decode worker: the prefill workers. A hand-off that none of them holds is refused with 500, as by
   * vLLM after a restart.
   */
  readonly prefills?: readonly FakeWorker[]
  /**
   * Data-parallel engines behind its URL, each with its own id and counters; default: 1. An invalid rank is
   * refused with 400.
   */
  readonly ranks?: number
  /** `cached_tokens` in usage, as with vLLM’s --enable-prompt-tokens-details; default: not reported. */
  readonly cachedTokens?: (request: ReceivedRequest, promptTokens: number) => number | undefined
  /** Idle timeout of connections (uvicorn: 5 s); default: none. */
  readonly keepAliveMs?: number
  /** Number of newest requests and hand-offs kept for assertions. */
  readonly recordLimit?: number
}

export interface ReceivedRequest {
  readonly method: string
  readonly path: string
  readonly query: string
  /** By lower-case name. */
  readonly headers: Readonly<Record<string, string>>
  readonly body: Buffer
  // oxlint-disable-next-line typescript/no-explicit-any -- bodies are what a test says they are
  readonly json: any
  readonly leg: 'prefill' | 'decode' | 'other'
  /** `kv_transfer_params` of the body. */
  readonly kv: Readonly<Record<string, unknown>> | undefined
  /** X-data-parallel-rank, if it is a number: vLLM ignores other values. */
  readonly dpRank: number | undefined
  readonly isGeneration: boolean
  readonly isChat: boolean
  readonly keepAlive: boolean
}

export interface Counters {
  connections: number
  /** Completions and chats in flight. */
  active: number
  /** All received requests: `prefill` and `decode` by leg, `other` for health, models and the like. */
  prefill: number
  decode: number
  other: number
  /** Served to the end. */
  completed: number
  /** The peer left before the end. */
  aborted: number
  /** Ended by a fault. */
  faulted: number
  /** Started hangs, including those that are over. */
  held: number
  /** Refused with 4xx by validation. */
  rejected: number
  /** Bytes that were not valid HTTP/1.1. */
  badFraming: number
  /** Legs of the other role. */
  misdirected: number
  /** Decodes without a hand-off. */
  noKv: number
  /** Decodes whose hand-off still had its `eldr` key. */
  eldrAtDecode: number
  handoffsGiven: number
  handoffsRead: number
  /** Decodes with a hand-off that no worker of `prefills` holds. */
  handoffsUnknown: number
  tokensSent: number
}

/** Completions and chats for this rank. */
export interface RankCounters {
  prefill: number
  decode: number
  other: number
  active: number
}

/** Where in a response a fault applies. `tokens`: after that many tokens. */
export type FaultPoint = 'request' | 'headers' | 'tokens'

export type Fault =
  /**
   * RST: of a new connection, or after the request was read, the head was sent, or this many tokens were
   * sent.
   */
  | { readonly kind: 'reset'; readonly after: 'accept' | FaultPoint; readonly tokens?: number }
  /** Silence, forever or until a promise resolves; the response then continues normally. */
  | {
      readonly kind: 'hang'
      readonly after: FaultPoint
      readonly tokens?: number
      readonly until?: Promise<unknown>
      /** The worker does not notice that the peer has left, as when both happen at the same time. */
      readonly unaware?: boolean
    }
  /** An error in vLLM’s format. */
  | {
      readonly kind: 'status'
      readonly status: number
      readonly message?: string
      readonly headers?: Readonly<Record<string, string>>
    }
  /** Bytes that are not HTTP, then the end of the connection. */
  | { readonly kind: 'garbage'; readonly bytes?: string }
  /**
   * The connection ends before the announced body: after half of a content-length, or inside a chunk after
   * this many tokens.
   */
  | { readonly kind: 'truncate'; readonly tokens?: number }
  /** The correct response, a few bytes at a time. */
  | { readonly kind: 'slow'; readonly bytes?: number; readonly everyMs?: number }
  /** Another content type, or another body with it. */
  | { readonly kind: 'answer'; readonly contentType?: string; readonly body?: string }
  /** The stream ends after this many tokens, without a finish reason and without [DONE]. */
  | { readonly kind: 'close'; readonly tokens?: number }
  /** vLLM’s error event after this many tokens, then [DONE]. */
  | { readonly kind: 'error_event'; readonly tokens?: number; readonly message?: string }
  /** The response is compressed if the request accepts it. */
  | { readonly kind: 'gzip' }

export interface FaultScope {
  /** Number of requests (or connections) it applies to; default: all until cleared. */
  readonly times?: number
  /** Which requests it applies to; default: completions and chats. */
  readonly match?: (request: ReceivedRequest) => boolean
}

export interface FakeWorkerEvents {
  connection: undefined
  /** A request was received completely, before any response. */
  request: ReceivedRequest
  /** A response has ended: normally, by the peer or by a fault. */
  end: ReceivedRequest
  abort: ReceivedRequest
}

export interface FakeWorker {
  readonly url: string
  readonly port: number
  /** Changes with every restart. */
  readonly engineId: string
  /** Live; spread it to take a snapshot. */
  readonly counters: Readonly<Counters>
  /** By rank. */
  readonly ranks: readonly Readonly<RankCounters>[]
  /** Oldest first. */
  readonly requests: readonly ReceivedRequest[]
  /**
   * Reads of each hand-off by `remote_request_id`: those given by a prefill worker, those read by a decode
   * worker.
   */
  readonly handoffs: ReadonlyMap<string, number>

  fail(fault: Fault, scope?: FaultScope): void
  failNext(fault: Fault, scope?: Omit<FaultScope, 'times'>): void
  clearFaults(): void
  /** Stops listening and closes idle connections; responses in progress continue. */
  refuse(): Promise<void>
  /** Listens again, on the same port. */
  accept(): Promise<void>
  /** Like a killed process that restarts: connections are reset, the engine has a new id and no memory. */
  restart(): Promise<void>
  close(): Promise<void>

  once<E extends keyof FakeWorkerEvents>(event: E): Promise<FakeWorkerEvents[E]>
  /** Resolves when the counters are as wanted; fails after `timeoutMs` with the counters. */
  waitFor(wanted: (counters: Readonly<Counters>) => boolean, timeoutMs?: number): Promise<void>
  waitForActive(count: number): Promise<void>
  waitForRequests(count: number): Promise<void>
  waitForAborts(count: number): Promise<void>
}
