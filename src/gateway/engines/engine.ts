/** What the gateway must know of an engine's way to hand a request from prefill to decode. */
import type { ClientRequest } from '../http/client-request.ts'

export interface EngineAdapter {
  readonly name: string
  /** Body of the prefill leg: never streamed, one token. */
  prefillBody(request: ClientRequest): Buffer
  /** From the whole body of prefill's answer; a string says what is wrong with it. */
  readHandoff(answer: Buffer, request: ClientRequest): Handoff | string
  /** Body of the decode leg: the client's own, with the hand-off. */
  decodeBody(request: ClientRequest, handoff: Handoff): Buffer
  /** Body of a decode request that nobody wants, whose end frees the blocks: never streamed, one token. */
  releaseBody(request: ClientRequest, handoff: Handoff): Buffer
}

export interface Handoff {
  /** JSON of what decode needs to find the KV cache, counts taken out. */
  readonly transfer: Buffer
  /** The `eldr` object, parsed; undefined when the worker has no plugin. */
  readonly counts: unknown
  /** Base64 .npy, where the engine returns its routed experts instead. */
  readonly routedExperts: string | undefined
  /** Changes when the worker restarts. */
  readonly engineId: string | undefined
  readonly promptTokens: number | undefined
}
