/**
 * Why a worker gave no answer, or none that can be used: a status of 429 or 5xx, an error event in its stream, a stream that ends without
 * its end. `aborted`: by us, and `fault`: something threw while the answer was read; neither is the worker's doing.
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

/** Something that may end early: a client that leaves, a deadline. */
export interface StopSignal {
  /** Calls at once when it has happened already. Gives the way to take the listener off again. */
  onStop(listener: (reason: UpstreamFailure) => void): () => void
}
