/**
 * What the flow of a request must know about an engine. An adapter edits bodies and reads responses; it sends
 * nothing itself.
 */
import type { WorkerSpec } from '../../cluster/worker.ts'
import type { ClientRequest } from '../http/client-request.ts'

export interface EngineAdapter {
  readonly name: string
  /**
   * When the decode worker is chosen. `decode_after_prefill`: by the counts of prefill's response.
   * `decode_before_prefill`: by load alone, because prefill must know where its KV cache will go.
   */
  readonly legOrder: 'decode_after_prefill' | 'decode_before_prefill'
  /**
   * Fields that only the gateway may set. They are removed from what clients send: a client could name any
   * host or other blocks.
   */
  readonly reservedFields: readonly string[]
  /** Client headers that mean something to this engine alone. */
  readonly passedHeaders: readonly string[]

  /**
   * Body of the prefill leg: not streamed, one token. `decode`: the chosen decode worker, where the order has
   * one.
   */
  prefillBody(request: ClientRequest, worker: WorkerSpec, decode: WorkerSpec | undefined): Buffer
  /** Reads the whole body of prefill's response. */
  readHandoff(response: Buffer, request: ClientRequest): HandoffResult
  /** Body of the decode leg: the client's own, with the hand-off. */
  decodeBody(request: ClientRequest, handoff: Handoff, worker: WorkerSpec): Buffer
  /**
   * Body of a decode request whose only purpose is to free the hand-off of a client that has left: not
   * streamed, one token. Undefined if the engine frees it without help.
   */
  releaseBody(request: ClientRequest, handoff: Handoff, worker: WorkerSpec): Buffer | undefined
  /** Removes from a response what clients must not see. */
  cleanResponse(response: WorkerResponse): Buffer

  /** Headers that choose the data-parallel rank of a server; undefined for a worker without one. */
  rankHeaders(worker: Pick<WorkerSpec, 'dpRank'>): Readonly<Record<string, string>> | undefined
  /** Why a response means that the server has no such rank, if it does. */
  missingRank(worker: WorkerSpec, status: number, body: Buffer): string | undefined
}

/** A JSON object as bytes, with its scanned members. */
export type WorkerResponse = Pick<ClientRequest, 'body' | 'members'>

export type HandoffResult =
  | { readonly kind: 'handed_off'; readonly handoff: Handoff }
  | { readonly kind: 'invalid'; readonly why: string }

export interface Handoff {
  /** What decode needs to find the KV cache, without the counts. Only the adapter reads it. */
  readonly transfer: Buffer
  /**
   * The `eldr` object; undefined when the worker has no plugin. Raw bytes if the adapter was created with
   * `rawCounts`.
   */
  readonly counts: unknown
  /** Base64 .npy, where the engine returns its routed experts instead. */
  readonly routedExperts: string | undefined
  /** Changes when the worker restarts. */
  readonly engineId: string | undefined
  readonly promptTokens: number | undefined
}

export interface EngineOptions {
  /**
   * Ask prefill for the prompt's token ids and give them to decode, so that the chat template and the
   * tokenizer run once.
   */
  readonly reuseTokenIds: boolean
  /** Leave counts as bytes, because another process reads them (`handoff-counts.ts`). */
  readonly rawCounts?: boolean
}
