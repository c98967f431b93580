/**
 * Interfaces between the parts of the embedded worker: the server asks an engine for generations; the engine
 * schedules them over KV blocks and asks a back end to compute steps. Independent of HTTP and of the model.
 */
export type * from './back-end.ts'

/** A validated request to the engine, which refuses only what its blocks can never hold. */
export interface Generation {
  readonly id: string
  readonly promptIds: Int32Array
  /** ≥ 1, limited to the context length by the server. */
  readonly maxTokens: number
  readonly minTokens: number
  readonly ignoreEos: boolean
  /**
   * Not generated before `minTokens`, like end-of-text tokens. The server decides where generation stops.
   * Within the vocabulary.
   */
  readonly stopTokenIds: ReadonlySet<number>
  readonly temperature: number
  /** Sample from this many most likely tokens; 0: all. */
  readonly topK: number
  readonly topP: number
  readonly seed: number | undefined
  /** Replay: the trace row that this request follows; undefined: chosen by the hash of the first block. */
  readonly row: number | undefined
  /** How many of the last prompt tokens were generated before, by a worker that failed. */
  readonly generated: number
  /** Prefill leg: if it ends because of its length, its blocks stay under a lease. */
  readonly keepForDecode: boolean
  /** Decode leg: KV to fetch before the first step. */
  readonly remote: RemoteKv | undefined
  /** Calibration: record the experts of each generated token. */
  readonly recordDecode: boolean
}

export interface RemoteKv {
  /** Leading prompt tokens whose KV the other worker holds, from 1 to all. */
  readonly tokens: number
  /**
   * Called once, when blocks have been allocated for it: the KV of the tokens from `from` on, because those
   * before it were found in the prefix cache. A rejection fails the request: KV is never silently recomputed.
   */
  fetch(stop: AbortSignal, from: number): Promise<KvPayload>
}

/** The KV of full and partial blocks as bytes, in the back end’s format. */
export interface KvPayload {
  readonly bytes: Uint8Array
  /** Of the prompt, including those before the first token of the payload. */
  readonly tokens: number
}

export interface GenerationEvents {
  /**
   * Called for each token when its step ends, including the end-of-text token, which has no text. May call
   * `abort`.
   */
  onToken(id: number, text: string): void
  /** Called exactly once, never from inside `generate`. */
  onEnd(end: GenerationEnd): void
}

export type GenerationEnd = FinishedGeneration | { readonly kind: 'aborted' } | FailedGeneration

export interface FinishedGeneration {
  readonly kind: 'finished'
  /** `stop`: end of text, or aborted with that reason. */
  readonly reason: 'stop' | 'length'
  readonly promptTokens: number
  /** Prompt tokens found in the prefix cache. Excludes fetched tokens. */
  readonly cachedTokens: number
  /** Generated tokens, including the end-of-text token. */
  readonly completionTokens: number
  /** Text that was held back and will not be completed (part of a character); usually empty. */
  readonly tail: string
  /** For prefill legs and recorded generations, if the engine captures experts. */
  readonly counts?: CountsSnapshot
  /** For a prefill leg that ended because of its length. The server owns it and must release it once. */
  readonly lease?: KeptBlocks
  readonly decode?: RecordedDecode
}

export interface FailedGeneration {
  readonly kind: 'failed'
  /** HTTP status: 400 for a request that can never run, 500 for a failure. */
  readonly status: number
  readonly message: string
}

/** Experts of a prompt: the contents of the `eldr` field of a hand-off. */
export interface CountsSnapshot {
  readonly layers: number
  readonly experts: number
  readonly topK: number
  /** Tokens of the prompt, and how many of them have known experts. */
  readonly tokens: number
  readonly covered: number
  /** [layers][experts] */
  readonly counts: Uint32Array
  /** [layers][experts], each token weighted by 2^(−distance from the last token / halfLife). */
  readonly recent?: Float64Array
  readonly halfLife?: number
}

/** Blocks of a prefill leg, held until a decode worker reads them. */
export interface KeptBlocks {
  readonly id: string
  readonly blockIds: readonly number[]
  readonly tokens: number
  /** From token `from` on. Throws after the release: the blocks may hold other content by then. */
  export(from: number): KvPayload
  /** Frees the blocks on the first call; later calls do nothing. */
  release(): void
}

/** Experts of the generated tokens that were computed: all except the last. */
export interface RecordedDecode {
  readonly steps: number
  /** [steps][layers][topK] */
  readonly ids: Uint16Array
}

export interface RunningGeneration {
  /**
   * `stop`: ends as finished with the tokens so far; `gone` (default): aborted. Frees everything at once; no
   * effect after the end.
   */
  abort(reason?: 'stop' | 'gone'): void
}

export interface WorkerEngine {
  readonly model: ModelShape
  readonly tokenizer: Tokenizer
  readonly settings: EngineSettings
  generate(request: Generation, events: GenerationEvents): RunningGeneration
  stats(): EngineStats
  /** Experts of the last decode step; all zero when the worker is idle. */
  union(): ExpertUnion
  /** Returns false and does nothing while any block is in use. */
  resetPrefixCache(): boolean
  /** Aborts running requests and closes the back end. */
  close(): Promise<void>
}

export interface ExpertUnion {
  readonly layers: number
  readonly experts: number
  /** [layers][experts], 1 if active. */
  readonly active: Uint8Array
}

export interface EngineSettings {
  /** Number of KV blocks, and tokens per block. */
  readonly blocks: number
  readonly blockTokens: number
  /** Limits per step: tokens (vLLM’s max_num_batched_tokens) and sequences (max_num_seqs). */
  readonly maxBatchedTokens: number
  readonly maxSeqs: number
  readonly prefixCaching: boolean
  /** Keep the experts of prompts with their blocks. Not needed on a decode-only worker. */
  readonly capture: boolean
  /** Half-life of recent counts in tokens; undefined: no recent counts. */
  readonly halfLife: number | undefined
}

export interface EngineStats {
  readonly running: number
  /** Queued, preempted, or waiting for remote KV. vLLM counts all of these as waiting. */
  readonly waiting: number
  /** Those waiting for remote KV. */
  readonly fetching: number
  readonly blocks: number
  /** Unreferenced blocks, including cached ones. */
  readonly blocksFree: number
  /** Blocks in the prefix cache, referenced or not. */
  readonly blocksCached: number
  /** Blocks held by leases of prefill legs. A shared block counts once per lease. */
  readonly blocksKept: number
  readonly leases: number
  /** Share of blocks in use. */
  readonly kvUsage: number
  /** Non-zero rows of the signature cache. */
  readonly signatureRows: number
  readonly signatureBytes: number
  /** In tokens, as in vLLM. */
  readonly prefixQueries: number
  readonly prefixHits: number
  readonly preemptions: number
  readonly promptTokens: number
  readonly generationTokens: number
  /** Ended requests by kind of end. */
  readonly finished: Readonly<Record<'stop' | 'length' | 'aborted' | 'failed', number>>
  readonly steps: number
  readonly decodeSteps: number
  /**
   * Sums over decode steps with one term per sequence: 1, and the step’s active experts. Their ratio is the
   * mean number of active experts per token.
   */
  readonly decodeTokens: number
  readonly activeTokens: number
  /**
   * Of the last decode step, 0 when idle: sequences, distinct experts [layers], and their mean over the cost
   * model’s layers.
   */
  readonly batch: number
  readonly activePerLayer: Uint16Array
  readonly active: number
  readonly timing: StepTiming
}

/** How closely steps keep to the modelled time. Counts only steps that followed another without a pause. */
export interface StepTiming {
  readonly steps: number
  /** Sums over those steps: modelled and actual time. */
  readonly modelledMs: number
  readonly takenMs: number
  /** Of |actual − modelled| / modelled. */
  readonly errorP50: number
  readonly errorP99: number
  /** Mean computation time per step. */
  readonly computeMs: number
}

export interface ModelShape {
  /** MoE layers, experts per layer, and experts per token. */
  readonly layers: number
  readonly experts: number
  readonly topK: number
}

export interface ChatMessage {
  readonly role: string
  readonly content: string
}

export interface Tokenizer {
  readonly size: number
  /** The end-of-text token of the model’s tokenizer. */
  readonly eosId: number
  /** True if this token ends a text: `eosId`, or another one for models with several. */
  endsText(id: number): boolean
  /**
   * Lower bound on a prompt’s tokens, from its length alone: encoding a prompt that is far too long would
   * block the worker.
   */
  leastTokens(prompt: string | readonly ChatMessage[]): number
  encode(text: string): Int32Array
  /** Includes special tokens that have a text. decode(encode(text)) equals text for any valid UTF-8. */
  decode(ids: ArrayLike<number>): string
  /** One token as the model’s files write it. */
  tokenString(id: number): string
  /**
   * Decodes generated tokens one by one: special tokens give no text, and incomplete characters are held
   * back. `before`: the prompt, whose ids may end inside a character.
   */
  stream(before?: ArrayLike<number>): TextStream
  /** Applies the chat template, ready for the assistant’s turn. */
  chat(messages: readonly ChatMessage[]): Int32Array
}

export interface TextStream {
  push(id: number): string
  /** Returns held-back bytes as replacement characters. */
  end(): string
}
