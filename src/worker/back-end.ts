/** What the engine says to a back end, and what a back end is. */
import type { Generation, KvPayload, ModelShape, Tokenizer } from './types.ts'

/** What a back end keeps of a request between steps. Only the back end looks inside. */
export interface BackEndSequence {
  /** Goes into the hash of the first block: sequences of other salts share no blocks. */
  readonly salt: string
}

/** One sequence of a step: tokens `from` up to `to` are computed, into their slots: token t lies in block blocks[⌊t / blockTokens⌋]. */
export interface StepItem<S extends BackEndSequence = BackEndSequence> {
  readonly sequence: S
  readonly request: Generation
  /** Prompt and what was generated; longer than `length` where the array has room to grow. */
  readonly ids: Int32Array
  readonly length: number
  readonly from: number
  readonly to: number
  readonly blocks: Int32Array
  /** One token of a sequence whose other tokens are there: what a decode step does. All else is prefill. */
  readonly decode: boolean
  /** Where to put the experts of the generated tokens among them, [tokens][layers][topK]; undefined when nobody asked, or there are none. */
  readonly record: Uint16Array | undefined
}

/** Where a back end leaves the experts of a token as it computes it. */
export interface ExpertSink {
  /** `experts`: [layers][topK] from `at` on. A token that is computed again overwrites itself. */
  put(block: number, slot: number, experts: Uint8Array | Uint16Array, at: number): void
}

export interface StepResult {
  /** [items] next token of items whose `to` is their length; others are not looked at. */
  readonly next: Int32Array
  /** Items that went wrong by themselves, by their place: their requests fail, and the others go on. */
  readonly faults?: ReadonlyMap<number, Error>
  /** How long the step takes; 0: as long as computing it did. */
  readonly ms: number
  /** Of the step's decode items; as in EngineStats. Overwritten by the next step. */
  readonly activePerLayer: Uint16Array
  readonly active: number
}

/**
 * What steps compute, and how long they take. It owns the KV: slots of blocks whose ids the engine gives it. `replay` takes experts from
 * a trace and time from a cost profile; a real model computes over the paged KV. Steps are synchronous: when `step` returns, KV and
 * experts are written, so that a request may be aborted, and its blocks reused, at any time between steps.
 */
export interface BackEnd<S extends BackEndSequence = BackEndSequence> {
  readonly model: ModelShape
  readonly tokenizer: Tokenizer
  /** Of KV, as it is exported. */
  readonly bytesPerToken: number
  /** Once, before all else. */
  allocate(blocks: number, blockTokens: number): void
  /** Gets a request ready; may read files. A rejection fails the request, with `status` of the error where it has one. */
  prepare(request: Generation): Promise<S>
  /** `sink`: undefined when nobody wants experts of prompts. */
  step(items: readonly StepItem<S>[], sink: ExpertSink | undefined): StepResult
  /** Writes the experts of the last step's decode items: [layers][experts] ones and zeros. */
  union(out: Uint8Array): void
  exportKv(sequence: S, blocks: ArrayLike<number>, tokens: number): Uint8Array
  /** KV of the first `tokens` tokens, of which those before `from` are in place already. Throws, having written nothing, when it is not that of these ids. */
  importKv(
    sequence: S,
    payload: KvPayload,
    ids: Int32Array,
    from: number,
    tokens: number,
    blocks: ArrayLike<number>,
  ): void
  /** What moving so many tokens takes at least. */
  transferMs(tokens: number): number
  close(): Promise<void>
}
