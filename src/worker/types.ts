/**
 * What the parts of the embedded worker say to each other: the server asks an engine for generations, the engine schedules them over KV
 * blocks and asks a back end to compute steps. Nothing here knows HTTP, and nothing here knows what a model is.
 */
export type * from './back-end.ts'

/** What the server asks of the engine. Checked already: the engine refuses only what its blocks can never hold. */
export interface Generation {
  readonly id: string
  readonly promptIds: Int32Array
  /** ≥ 1, limited to the context length by the server. */
  readonly maxTokens: number
  readonly minTokens: number
  readonly ignoreEos: boolean
  /** Not generated before `minTokens`, as ends of the text are not; where generation stops is the server's to say. Within the vocabulary. */
  readonly stopTokenIds: ReadonlySet<number>
  readonly temperature: number
  /** The most likely tokens that are drawn from; 0: all. */
  readonly topK: number
  readonly topP: number
  readonly seed: number | undefined
  /** Replay: row of the trace that this request follows; undefined: chosen by the hash of the first block. */
  readonly row: number | undefined
  /** Prefill leg: when it ends for its length, its blocks stay under a lease. */
  readonly keepForDecode: boolean
  /** Decode leg: these blocks are fetched before the first step. */
  readonly remote: RemoteKv | undefined
  /** Calibration: the experts of each generated token are recorded. */
  readonly recordDecode: boolean
}

export interface RemoteKv {
  /** Leading tokens of the prompt whose KV the other worker holds, 1 up to all. */
  readonly tokens: number
  /** Called once, when blocks are there to take it. A rejection fails the request: nothing is ever recomputed silently. */
  fetch(stop: AbortSignal): Promise<KvPayload>
}

/** The KV of whole and part blocks as bytes; what is in it is the back end's business. */
export interface KvPayload {
  readonly bytes: Uint8Array
  readonly tokens: number
}

export interface GenerationEvents {
  /** Each token as its step ends; the end-of-text token too, with no text. `abort` may be called from here. */
  onToken(id: number, text: string): void
  /** Once, whatever happened; never from inside `generate`. */
  onEnd(end: GenerationEnd): void
}

export type GenerationEnd = FinishedGeneration | { readonly kind: 'aborted' } | FailedGeneration

export interface FinishedGeneration {
  readonly kind: 'finished'
  /** `stop`: end of text, or aborted with that reason. */
  readonly reason: 'stop' | 'length'
  readonly promptTokens: number
  /** Prompt tokens that were not computed here because the prefix cache had them; fetched ones are not among them. */
  readonly cachedTokens: number
  /** Generated, the end of text included. */
  readonly completionTokens: number
  /** Text that was held back and will not be completed (half a character); empty otherwise. */
  readonly tail: string
  /** Of a prefill leg and of a recorded generation, where the engine captures experts. */
  readonly counts?: CountsSnapshot
  /** Of a prefill leg that ended for its length. The server owns it, and must release it once. */
  readonly lease?: KeptBlocks
  readonly decode?: RecordedDecode
}

export interface FailedGeneration {
  readonly kind: 'failed'
  /** As HTTP has it: 400 for what can never run, 500 for what went wrong. */
  readonly status: number
  readonly message: string
}

/** Experts of a prompt: what the `eldr` field of a hand-off says. */
export interface CountsSnapshot {
  readonly layers: number
  readonly experts: number
  readonly topK: number
  /** Of the prompt, and those of them whose experts are known here. */
  readonly tokens: number
  readonly covered: number
  /** [layers][experts] */
  readonly counts: Uint32Array
  /** [layers][experts], each token weighing 2^(−distance from the last one / halfLife). */
  readonly recent?: Float64Array
  readonly halfLife?: number
}

/** Blocks of a prefill leg that wait for a decode worker to read them. */
export interface KeptBlocks {
  readonly id: string
  readonly blockIds: readonly number[]
  readonly tokens: number
  /** Throws once released: the blocks may hold something else by then. */
  export(): KvPayload
  /** Any number of times; the first frees the blocks. */
  release(): void
}

/** Experts of the generated tokens that were computed: all but the last, which nothing follows. */
export interface RecordedDecode {
  readonly steps: number
  /** [steps][layers][topK] */
  readonly ids: Uint16Array
}

export interface RunningGeneration {
  /** `stop`: it ends as finished, with what it has; `gone` (unless told): aborted. Frees everything at once; no effect after the end. */
  abort(reason?: 'stop' | 'gone'): void
}

export interface WorkerEngine {
  readonly model: ModelShape
  readonly tokenizer: Tokenizer
  readonly settings: EngineSettings
  generate(request: Generation, events: GenerationEvents): RunningGeneration
  stats(): EngineStats
  /** Experts of the last decode step; none when the worker is idle. */
  union(): ExpertUnion
  /** False, and nothing done, while any block is in use. */
  resetPrefixCache(): boolean
  /** Aborts what runs and closes the back end. */
  close(): Promise<void>
}

export interface ExpertUnion {
  readonly layers: number
  readonly experts: number
  /** [layers][experts] 1 where it fires. */
  readonly active: Uint8Array
}

export interface EngineSettings {
  /** KV blocks, and tokens of each. */
  readonly blocks: number
  readonly blockTokens: number
  /** Tokens computed in one step at most (vLLM's max_num_batched_tokens), and sequences (max_num_seqs). */
  readonly maxBatchedTokens: number
  readonly maxSeqs: number
  readonly prefixCaching: boolean
  /** Whether experts of prompts are kept with the blocks. A worker that only decodes is never asked for them. */
  readonly capture: boolean
  /** Of recent counts, in tokens; undefined: none are made. */
  readonly halfLife: number | undefined
}

export interface EngineStats {
  readonly running: number
  /** Queued, preempted, or waiting for remote KV: vLLM counts them all as waiting. */
  readonly waiting: number
  /** Of those, waiting for remote KV. */
  readonly fetching: number
  readonly blocks: number
  /** Those that nobody refers to, cached ones among them. */
  readonly blocksFree: number
  /** Found by their hash, referred to or not. */
  readonly blocksCached: number
  /** Held by leases of prefill legs, each lease's counted. */
  readonly blocksKept: number
  readonly leases: number
  /** Share of blocks in use. */
  readonly kvUsage: number
  /** Rows of the signature cache that are not zero. */
  readonly signatureRows: number
  readonly signatureBytes: number
  /** Tokens, as vLLM counts them. */
  readonly prefixQueries: number
  readonly prefixHits: number
  readonly preemptions: number
  readonly promptTokens: number
  readonly generationTokens: number
  /** Requests that have ended, by how. */
  readonly finished: Readonly<Record<'stop' | 'length' | 'aborted' | 'failed', number>>
  readonly steps: number
  readonly decodeSteps: number
  /** Sums over decode steps, one term a sequence: 1, and the step's active experts. Their ratio is what a token meets on average. */
  readonly decodeTokens: number
  readonly activeTokens: number
  /** Of the last decode step, 0 when idle: sequences, distinct experts [layers], and their mean over the cost model's layers. */
  readonly batch: number
  readonly activePerLayer: Uint16Array
  readonly active: number
  readonly timing: StepTiming
}

/** How well steps keep the time that the back end gives them. Of steps that followed another without a pause. */
export interface StepTiming {
  readonly steps: number
  /** Sums over those steps: what they should have taken, and what they took. */
  readonly modelledMs: number
  readonly takenMs: number
  /** Of |taken − modelled| / modelled. */
  readonly errorP50: number
  readonly errorP99: number
  /** What computing took of it, mean. */
  readonly computeMs: number
}

export interface ModelShape {
  /** MoE layers, experts of each, and experts that a token goes to. */
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
  /** The end of a text, as the model's own tokenizer has it. */
  readonly eosId: number
  /** Whether a text ends with this token: `eosId`, and others where a model has several. */
  endsText(id: number): boolean
  /** Tokens that a prompt has at least, told from its length alone: encoding one that is far too long would take the worker's time. */
  leastTokens(prompt: string | readonly ChatMessage[]): number
  encode(text: string): Int32Array
  /** Special tokens included, where they have a text. decode(encode(text)) is text, for any text that UTF-8 can hold. */
  decode(ids: ArrayLike<number>): string
  /** One token as the model's files write it. */
  tokenString(id: number): string
  /** Generated text, token by token: special tokens say nothing, and what is half a character is held back until it is whole. */
  stream(): TextStream
  /** The chat template, ready for the assistant's turn. */
  chat(messages: readonly ChatMessage[]): Int32Array
}

export interface TextStream {
  push(id: number): string
  /** What was held back, as replacement characters. */
  end(): string
}
