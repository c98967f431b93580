/**
 * What the flow of a request must know about an engine. An adapter edits bodies and reads responses; it sends
 * nothing itself.
 */
import type { WorkerSpec } from '../../cluster/worker.ts'
import type { ClientRequest, RequestFields } from '../http/client-request.ts'
import type { Changes } from '../json/edit.ts'

export interface EngineAdapter extends RequestFields {
  readonly name: string
  /**
   * When the decode worker is chosen. `decode_after_prefill`: by the counts of prefill's response.
   * `decode_before_prefill`: by load alone, because prefill must know where its KV cache will go.
   */
  readonly legOrder: 'decode_after_prefill' | 'decode_before_prefill'
  /**
   * Decode workers keep the KV cache of ended requests, fetch only what they lack of a hand-off, and serve a
   * request without one. If absent, conversations are not followed.
   */
  readonly keepsKv?: true
  /** Client headers that mean something to this engine alone. */
  readonly passedHeaders: readonly string[]
  /** Top-level fields that clients must not see. */
  readonly privateFields: {
    /** Of a non-streamed response. Null may stay. */
    readonly response: readonly string[]
    /** Of the events of a stream. An empty list costs nothing per token. */
    readonly event: readonly string[]
  }

  /**
   * Body of the prefill leg: not streamed, one token. `decode`: the chosen decode worker, where the order has
   * one.
   */
  prefillBody(request: ClientRequest, worker: WorkerSpec, decode: WorkerSpec | undefined): Buffer
  /** Reads the whole body of prefill's response. */
  readHandoff(response: Buffer, request: ClientRequest): HandoffResult
  /** Body of the decode leg: the client's own, with the hand-off and `more` fields. */
  decodeBody(request: ClientRequest, handoff: Handoff, worker: WorkerSpec, more?: Changes): Buffer
  /** Body of a request that one worker serves alone, on any route; without reserved fields. */
  aloneBody(request: JsonObject, worker: WorkerSpec, more?: Changes): Buffer
  /** How a broken stream goes on with another worker. If absent, it does not. */
  readonly resumption?: Resumption

  /** What became of the hand-off of a decode request. */
  handoffAfter(end: DecodeEnd): HandoffState
  /** The request that frees a hand-off, or undefined if there is none: then its lease ends. */
  releaseRequest(unused: UnusedHandoff): ReleaseRequest | undefined

  /**
   * Headers that choose the data-parallel rank of a server; undefined for a worker without one, and for an
   * engine that has a field for it.
   */
  rankHeaders(worker: Pick<WorkerSpec, 'dpRank'>): Readonly<Record<string, string>> | undefined
  /** Why a response means that the server has no such rank, if it does. */
  missingRank(worker: WorkerSpec, status: number, body: Buffer): string | undefined
}

export interface Resumption {
  /** Fields that make a decode worker send the ids of prompt and tokens in its events. */
  readonly idFields: Changes
  /**
   * Body of a completion that goes on after `generated` tokens. `ids`: those of the prompt, then of the
   * tokens, as JSON.
   */
  continuation(request: ClientRequest, ids: string, generated: number): Buffer
}

/** A JSON object as bytes, with its scanned members. */
export type JsonObject = Pick<ClientRequest, 'body' | 'members'>

/** How a decode request ended. */
export interface DecodeEnd {
  /** `served`: the client has the complete response. `stopped`: the client left, or its time is up. */
  readonly kind: 'served' | 'failed' | 'stopped'
  /** Of the response, if there was one. */
  readonly status?: number | undefined
  /** The worker may have seen the request. Absent if it was served. */
  readonly sent?: boolean
}

/**
 * `unseen`: no worker has seen it, so the next attempt may use it.
 * `refused`: a worker has seen it and may not have freed it. It is not used again. It is released if the
 * client has its response or the request is retried.
 * `missed`: a worker may have failed because it did not find it. The next attempt needs another hand-off, and
 * may use the same worker.
 * `used`: nothing is left to free.
 */
export type HandoffState = 'unseen' | 'refused' | 'missed' | 'used'

/** A hand-off that no decode request will use. */
export interface UnusedHandoff {
  readonly request: ClientRequest
  /** Of the client's request. */
  readonly path: string
  readonly handoff: Handoff
  /** The worker that handed off. */
  readonly prefill: WorkerSpec
  /**
   * The worker chosen for it, where the order has one; otherwise one that takes requests. Undefined if none
   * does.
   */
  readonly decode: WorkerSpec | undefined
}

export interface ReleaseRequest {
  readonly worker: WorkerSpec
  readonly path: string
  readonly body: Buffer
  /** After this time the request is aborted, which frees the hand-off as its end does. */
  readonly abortAfterMs: number
}

export type HandoffResult =
  | { readonly kind: 'handed_off'; readonly handoff: Handoff }
  | { readonly kind: 'invalid'; readonly why: string }

export interface Handoff {
  /** What decode needs to find the KV cache, without the counts. Only the adapter reads it. */
  readonly transfer: Buffer
  /**
   * The `eldr` object as bytes; undefined when the worker has no plugin. It is parsed where the decision is
   * made, which may be in another process (`handoff-counts.ts`).
   */
  readonly counts: Buffer | undefined
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
}
