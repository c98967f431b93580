/**
 * Why a worker gave no usable response. `status`: 429 or 5xx. `error_event`: an error event in the stream.
 * `early_end`: a stream without its end. Not caused by the worker: `aborted` by the gateway, and `fault`, an
 * exception while the gateway read the response.
 */
export type FailureKind =
  | 'connect'
  | 'reset'
  | 'timeout'
  | 'garbage'
  | 'too_large'
  | 'status'
  | 'error_event'
  | 'early_end'
  | 'aborted'
  | 'fault'

export class UpstreamFailure extends Error {
  readonly kind: FailureKind

  constructor(kind: FailureKind, message: string, cause?: unknown) {
    super(message, { cause })
    this.kind = kind
  }
}

/** Fires when a request must stop early: the client disconnects, or a deadline passes. */
export interface StopSignal {
  /** Calls the listener at once if it has already fired. Returns a function that removes the listener. */
  onStop(listener: (reason: UpstreamFailure) => void): () => void
}
