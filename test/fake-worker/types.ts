/** What a fake worker is told and what it tells. The worker itself is plain JavaScript, so that it also runs as a process of its own. */

/** Routed-expert counts that a prefill answer carries; without them a hand-off has no `eldr` key. */
export interface CountsShape {
  readonly layers: number
  readonly experts: number
  readonly topK: number
  /** Prompt tokens that the counts are of; those of the prompt unless told. */
  readonly tokens?: number
  /** Requests take turns over so many different counts. */
  readonly variants?: number
  readonly seed?: number
}

export interface FakeWorkerOptions {
  /** Requests of the other leg are answered too and counted as `misdirected`. */
  readonly role?: 'prefill' | 'decode' | 'both'
  /** Hand-off as vLLM has it (the default), or as test/gateway/push-engine.ts does. */
  readonly protocol?: 'vllm' | 'push'
  readonly host?: string
  readonly port?: number
  readonly model?: string
  /** Time of a prefill, before the first token of a decode, and between its tokens. 0: as fast as possible. */
  readonly prefillMs?: number
  readonly firstTokenMs?: number
  readonly gapMs?: number
  /** Tokens of an answer whose request names no limit. */
  readonly tokens?: number
  /** A shape, or a function that gives the `eldr` object of a request: right, wrong or undefined. */
  readonly counts?: CountsShape | ((request: ReceivedRequest) => unknown)
  /** Of a decode worker: where hand-offs come from. One that none of them holds is answered with 500, as by vLLM after a restart. */
  readonly prefills?: readonly FakeWorker[]
  /** Data-parallel engines behind its URL, each with an id and counters of its own; 1 unless told. A rank that is none is answered with 400. */
  readonly ranks?: number
  /** An idle connection is closed after so long (uvicorn: 5 s); never unless told. */
  readonly keepAliveMs?: number
  /** Requests and hand-offs kept for assertions, the newest. */
  readonly recordLimit?: number
}

export interface ReceivedRequest {
  readonly method: string
  readonly path: string
  readonly query: string
  /** By name in lower case. */
  readonly headers: Readonly<Record<string, string>>
  readonly body: Buffer
  // oxlint-disable-next-line typescript/no-explicit-any -- bodies are what a test says they are
  readonly json: any
  readonly leg: 'prefill' | 'decode' | 'other'
  /** `kv_transfer_params` of the body. */
  readonly kv: Readonly<Record<string, unknown>> | undefined
  /** X-data-parallel-rank, where it is a number: vLLM passes over any other. */
  readonly dpRank: number | undefined
  readonly isGeneration: boolean
  readonly isChat: boolean
  readonly keepAlive: boolean
}

export interface Counters {
  connections: number
  /** Completions and chats that are being answered now. */
  active: number
  /** All that came: `prefill` and `decode` by leg, `other` for health, models and the like. */
  prefill: number
  decode: number
  other: number
  /** Answered to the end. */
  completed: number
  /** The peer left before the end. */
  aborted: number
  /** Ended by a fault. */
  faulted: number
  /** Hangs that have begun; those that are over count as well. */
  held: number
  /** Answered with 4xx because of what they were. */
  rejected: number
  /** Bytes that were not HTTP/1.1, or not as it should be. */
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

/** Of completions and chats that named this rank. */
export interface RankCounters {
  prefill: number
  decode: number
  other: number
  active: number
}

/** Where in an answer a fault strikes. `tokens`: that many tokens have been sent. */
export type FaultPoint = 'request' | 'headers' | 'tokens'

export type Fault =
  /** RST: of a new connection, or once the request has been read, the head has been sent, or so many tokens have. */
  | { readonly kind: 'reset'; readonly after: 'accept' | FaultPoint; readonly tokens?: number }
  /** Silence, for good or until a promise is kept, after which the answer goes on as if nothing had been. */
  | {
      readonly kind: 'hang'
      readonly after: FaultPoint
      readonly tokens?: number
      readonly until?: Promise<unknown>
      /** The worker does not notice that the peer has left, as when both happen at the same time. */
      readonly unaware?: boolean
    }
  /** An error in vLLM's form. */
  | {
      readonly kind: 'status'
      readonly status: number
      readonly message?: string
      readonly headers?: Readonly<Record<string, string>>
    }
  /** Bytes that are not HTTP, then the end of the connection. */
  | { readonly kind: 'garbage'; readonly bytes?: string }
  /** The connection ends before the body that was announced: half of a content-length, or amid a chunk after so many tokens. */
  | { readonly kind: 'truncate'; readonly tokens?: number }
  /** The right answer, a few bytes at a time. */
  | { readonly kind: 'slow'; readonly bytes?: number; readonly everyMs?: number }
  /** Another content type, or another body with it, in place of the right ones. */
  | { readonly kind: 'answer'; readonly contentType?: string; readonly body?: string }
  /** The stream ends as HTTP would have it after so many tokens, without a finish reason and without [DONE]. */
  | { readonly kind: 'close'; readonly tokens?: number }
  /** vLLM's error event after so many tokens, then [DONE]. */
  | { readonly kind: 'error_event'; readonly tokens?: number; readonly message?: string }
  /** The answer is compressed if the request says that it may be. */
  | { readonly kind: 'gzip' }

export interface FaultScope {
  /** Requests (or connections) that it strikes; all until cleared, unless told. */
  readonly times?: number
  /** Which requests; completions and chats unless told. */
  readonly match?: (request: ReceivedRequest) => boolean
}

export interface FakeWorkerEvents {
  connection: undefined
  /** A request has come as a whole, before anything is answered. */
  request: ReceivedRequest
  /** An answer has ended: as it should, by the peer or by a fault. */
  end: ReceivedRequest
  abort: ReceivedRequest
}

export interface FakeWorker {
  readonly url: string
  readonly port: number
  /** Changes with every restart. */
  readonly engineId: string
  /** Live; spread it to keep a moment. */
  readonly counters: Readonly<Counters>
  /** By rank. */
  readonly ranks: readonly Readonly<RankCounters>[]
  /** Oldest first. */
  readonly requests: readonly ReceivedRequest[]
  /** By `remote_request_id`: how often each hand-off was read. At a prefill worker those given, at a decode worker those read. */
  readonly handoffs: ReadonlyMap<string, number>

  fail(fault: Fault, scope?: FaultScope): void
  failNext(fault: Fault, scope?: Omit<FaultScope, 'times'>): void
  clearFaults(): void
  /** Stops listening and closes idle connections; answers under way go on. */
  refuse(): Promise<void>
  /** Listens again, on the same port. */
  accept(): Promise<void>
  /** As a killed process that comes back: connections are reset, the engine has a new id and knows nothing of before. */
  restart(): Promise<void>
  close(): Promise<void>

  once<E extends keyof FakeWorkerEvents>(event: E): Promise<FakeWorkerEvents[E]>
  /** Resolves when the counters are as wanted; fails after `timeoutMs`, naming them. */
  waitFor(wanted: (counters: Readonly<Counters>) => boolean, timeoutMs?: number): Promise<void>
  waitForActive(count: number): Promise<void>
  waitForRequests(count: number): Promise<void>
  waitForAborts(count: number): Promise<void>
}
