/**
 * The gateway's own error responses, each with a status and a stable code. Bodies have OpenAI's shape and
 * name neither workers nor addresses. docs/reference/errors.md lists this table.
 */
export const REFUSALS = {
  ELDR_BAD_REQUEST: { status: 400, type: 'invalid_request_error', message: 'Invalid request.' },
  ELDR_TOO_MANY_CHOICES: {
    status: 400,
    type: 'invalid_request_error',
    message: 'Too many choices in one request.',
  },
  ELDR_UNAUTHORIZED: {
    status: 401,
    type: 'invalid_request_error',
    message: 'Valid API key required: Authorization: Bearer KEY.',
  },
  ELDR_FORBIDDEN: {
    status: 403,
    type: 'invalid_request_error',
    message: 'Without an admin token, this route is available only from the local machine.',
  },
  ELDR_NOT_FOUND: { status: 404, type: 'invalid_request_error', message: 'Unknown route.' },
  ELDR_NOT_GENERATION: {
    status: 404,
    type: 'invalid_request_error',
    message:
      'This gateway serves text generation; embeddings, scores, pooling and audio have no decode phase to route.',
  },
  ELDR_WORKER_UNKNOWN: { status: 404, type: 'invalid_request_error', message: 'Unknown worker.' },
  ELDR_REQUEST_UNKNOWN: {
    status: 404,
    type: 'invalid_request_error',
    message: 'Unknown request: it is neither running nor among the recent decisions.',
  },
  ELDR_EXPERIMENT_UNKNOWN: {
    status: 404,
    type: 'invalid_request_error',
    message: 'Unknown experiment: it has ended, or its lease expired.',
  },
  ELDR_METHOD: { status: 405, type: 'invalid_request_error', message: 'Method not allowed for this route.' },
  ELDR_CLIENT_SLOW: {
    status: 408,
    type: 'invalid_request_error',
    message: 'Timeout while receiving the request.',
  },
  ELDR_WORKER_CONFLICT: {
    status: 409,
    type: 'invalid_request_error',
    message: 'Another worker already has this id, address or cluster.',
  },
  ELDR_POLICY_LACKS: {
    status: 409,
    type: 'invalid_request_error',
    message: 'The gateway has no artifact that this policy can use.',
  },
  ELDR_REFIT_REFUSED: {
    status: 409,
    type: 'invalid_request_error',
    message: 'Refit refused.',
  },
  ELDR_EXPERIMENT_RUNNING: {
    status: 409,
    type: 'invalid_request_error',
    message: 'An experiment is running: it decides the policy.',
  },
  ELDR_EXPERIMENT_REFUSED: {
    status: 409,
    type: 'invalid_request_error',
    message: 'Experiment refused.',
  },
  ELDR_ADAPT_REFUSED: {
    status: 409,
    type: 'invalid_request_error',
    message: 'There is nothing to swap to or to undo.',
  },
  ELDR_BODY_TOO_LARGE: {
    status: 413,
    type: 'invalid_request_error',
    message: 'Request body too large.',
  },
  ELDR_ARTIFACT_BAD: { status: 422, type: 'invalid_request_error', message: 'Invalid artifact.' },
  ELDR_OVERLOADED: {
    status: 429,
    type: 'server_error',
    message: 'The gateway is overloaded; try again later.',
  },
  ELDR_INTERNAL: {
    status: 500,
    type: 'server_error',
    message: 'Internal error; the gateway log has details under this request id.',
  },
  ELDR_REPLACE_FAILED: {
    status: 500,
    type: 'server_error',
    message: 'The gateway was not replaced and continues to serve.',
  },
  ELDR_PREFILL_FAILED: {
    status: 502,
    type: 'server_error',
    message: 'Prefill failed on every worker tried.',
  },
  ELDR_HANDOFF_BAD: {
    status: 502,
    type: 'server_error',
    message: 'Prefill returned no usable hand-off.',
  },
  ELDR_DECODE_FAILED: {
    status: 502,
    type: 'server_error',
    message: 'Decode failed on every worker tried.',
  },
  ELDR_STREAM_BROKEN: {
    status: 502,
    type: 'server_error',
    message: 'The stream ended early: the worker failed.',
  },
  ELDR_NO_PREFILL_WORKER: { status: 503, type: 'server_error', message: 'No prefill worker is available.' },
  ELDR_NO_DECODE_WORKER: { status: 503, type: 'server_error', message: 'No decode worker is available.' },
  ELDR_DRAINING: {
    status: 503,
    type: 'server_error',
    message: 'The gateway is shutting down; use another one.',
  },
  ELDR_REPLACING: {
    status: 503,
    type: 'server_error',
    message: 'The gateway is being replaced; try again.',
  },
  ELDR_QUEUE_TIMEOUT: {
    status: 503,
    type: 'server_error',
    message: 'The request waited too long in the queue.',
  },
  ELDR_OWNER_AWAY: {
    status: 503,
    type: 'server_error',
    message: 'The owner process is restarting; try again.',
  },
  ELDR_PREFILL_TIMEOUT: { status: 504, type: 'server_error', message: 'Prefill timed out.' },
  ELDR_DECODE_TIMEOUT: {
    status: 504,
    type: 'server_error',
    message: 'Decode timed out before the first token.',
  },
  ELDR_STREAM_STALLED: {
    status: 504,
    type: 'server_error',
    message: 'The stream ended early: no token arrived in time.',
  },
  ELDR_REQUEST_TIMEOUT: {
    status: 504,
    type: 'server_error',
    message: 'The request exceeded its time limit.',
  },
  ELDR_DEADLINE: {
    status: 504,
    type: 'server_error',
    message: 'The deadline set by the client has passed.',
  },
  ELDR_ARTIFACT_UNSAVED: {
    status: 507,
    type: 'server_error',
    message: 'The gateway cannot save the artifact: its temporary folder is full or read-only.',
  },
} as const satisfies Record<string, RefusalKind>

export type RefusalCode = keyof typeof REFUSALS

interface RefusalKind {
  readonly status: number
  readonly type: 'invalid_request_error' | 'server_error'
  readonly message: string
}

/** Ends a request with one of the errors above. Thrown and caught inside the gateway. */
export class Refusal extends Error {
  readonly code: RefusalCode
  /** Replaces the message of the table. */
  readonly words: string | undefined
  readonly param: string | undefined
  readonly retryAfterSeconds: number | undefined

  constructor(
    code: RefusalCode,
    more: { words?: string; param?: string; retryAfterSeconds?: number; cause?: unknown } = {},
  ) {
    super(`${code}${more.words === undefined ? '' : `: ${more.words}`}`, { cause: more.cause })
    this.code = code
    this.words = more.words
    this.param = more.param
    this.retryAfterSeconds = more.retryAfterSeconds
  }

  get status(): number {
    return REFUSALS[this.code].status
  }
}

/** {"error":{…}} as OpenAI clients expect it. */
export function errorBody({ code, words, param }: Refusal): string {
  const { type, message } = REFUSALS[code]
  return JSON.stringify({ error: { message: words ?? message, type, param: param ?? null, code } })
}

/** The same as an event of a running stream. */
export function errorEvent(refusal: Refusal): string {
  return `data: ${errorBody(refusal)}\n\n`
}
