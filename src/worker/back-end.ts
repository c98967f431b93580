/** The interface between the engine and a back end. */
import type { Generation, KvPayload, ModelShape, Tokenizer } from './types.ts'

/** Per-request state of a back end, kept between steps. Opaque to the engine. */
export interface BackEndSequence {
  /** Part of the first block’s hash: sequences with different salts share no blocks. */
  readonly salt: string
}

/**
 * One sequence of a step. Computes tokens `from` (inclusive) to `to` (exclusive) into their slots: token t is
 * in block blocks[⌊t / blockTokens⌋].
 */
export interface StepItem<S extends BackEndSequence = BackEndSequence> {
  readonly sequence: S
  readonly request: Generation
  /** Prompt and generated tokens. The array may be longer than `length`. */
  readonly ids: Int32Array
  readonly length: number
  readonly from: number
  readonly to: number
  readonly blocks: Int32Array
  /** A decode step: one token of a sequence whose other tokens are computed. Everything else is prefill. */
  readonly decode: boolean
  /**
   * Destination for the experts of generated tokens, [tokens][layers][topK]; undefined if they were not
   * requested or there are none.
   */
  readonly record: Uint16Array | undefined
}

/** Receives the experts of each token as it is computed. */
export interface ExpertSink {
  /**
   * `experts`: [layers][topK], starting at index `at`. A token that is computed again overwrites its entry.
   */
  put(block: number, slot: number, experts: Uint8Array | Uint16Array, at: number): void
}

export interface StepResult {
  /** [items] next token; valid only for items whose `to` equals their length. */
  readonly next: Int32Array
  /** Errors by item index: only the requests of these items fail. */
  readonly faults?: ReadonlyMap<number, Error>
  /** Duration of the step; 0: as long as the computation took. */
  readonly ms: number
  /** For the decode items of the step, as in EngineStats. Overwritten by the next step. */
  readonly activePerLayer: Uint16Array
  readonly active: number
}

/**
 * Destination of received KV: tokens `from` to `tokens` of `ids`; those before are already in `blocks`.
 */
export interface KvTarget {
  readonly ids: Int32Array
  readonly from: number
  readonly tokens: number
  readonly blocks: ArrayLike<number>
}

/**
 * Computes steps and determines how long they take. It owns the KV: slots of blocks whose ids the engine
 * assigns. `replay` takes experts from a trace and times from a cost profile; a real model computes over the
 * paged KV. Steps are synchronous: when `step` returns, KV and experts are written, so a request may be
 * aborted and its blocks reused at any time between steps.
 */
export interface BackEnd<S extends BackEndSequence = BackEndSequence> {
  readonly model: ModelShape
  readonly tokenizer: Tokenizer
  /** Bytes of KV per token, as exported. */
  readonly bytesPerToken: number
  /** Called once, before anything else. */
  allocate(blocks: number, blockTokens: number): void
  /**
   * Prepares a request; may read files. A rejection fails the request, with the error’s `status` if it has
   * one.
   */
  prepare(request: Generation): Promise<S>
  /** `sink`: undefined if experts of prompts are not captured. */
  step(items: readonly StepItem<S>[], sink: ExpertSink | undefined): StepResult
  /** Writes the experts of the last step’s decode items: [layers][experts], 1 if active, else 0. */
  union(out: Uint8Array): void
  /** The KV of tokens `from` (inclusive) to `tokens` (exclusive). */
  exportKv(sequence: S, blocks: ArrayLike<number>, from: number, tokens: number): Uint8Array
  /** Throws without writing anything if the KV does not belong to these ids. */
  importKv(sequence: S, payload: KvPayload, target: KvTarget): void
  /** Minimum time to transfer this many tokens. */
  transferMs(tokens: number): number
  close(): Promise<void>
}
