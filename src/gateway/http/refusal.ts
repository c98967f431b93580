/**
 * What the gateway itself answers when a request cannot be served: one line for each case, with a status and a stable code. Bodies have
 * OpenAI's shape; they name neither workers nor addresses. docs/reference/errors.md lists this table.
 */
export const REFUSALS = {
  ELDR_BAD_REQUEST: { status: 400, type: 'invalid_request_error', message: 'The request cannot be read.' },
  ELDR_TOO_MANY_CHOICES: {
    status: 400,
    type: 'invalid_request_error',
    message: 'The request asks for too many choices at once.',
  },
  ELDR_UNAUTHORIZED: {
    status: 401,
    type: 'invalid_request_error',
    message: 'A valid API key is needed: Authorization: Bearer KEY.',
  },
  ELDR_FORBIDDEN: {
    status: 403,
    type: 'invalid_request_error',
    message: 'Without an admin token set, this route answers on the machine itself only.',
  },
  ELDR_NOT_FOUND: { status: 404, type: 'invalid_request_error', message: 'There is no such route.' },
  ELDR_NOT_GENERATION: {
    status: 404,
    type: 'invalid_request_error',
    message:
      'This gateway serves text generation; embeddings, scores, pooling and audio have no decode phase to route.',
  },
  ELDR_WORKER_UNKNOWN: { status: 404, type: 'invalid_request_error', message: 'There is no such worker.' },
  ELDR_REQUEST_UNKNOWN: {
    status: 404,
    type: 'invalid_request_error',
    message: 'Nothing is known of this request: it is not under way, nor among the last decisions.',
  },
  ELDR_METHOD: { status: 405, type: 'invalid_request_error', message: 'This route takes another method.' },
  ELDR_CLIENT_SLOW: {
    status: 408,
    type: 'invalid_request_error',
    message: 'The request did not arrive in time.',
  },
  ELDR_WORKER_CONFLICT: {
    status: 409,
    type: 'invalid_request_error',
    message: 'Another worker has this id, address or cluster.',
  },
  ELDR_POLICY_LACKS: {
    status: 409,
    type: 'invalid_request_error',
    message: 'The policy needs what the gateway does not have.',
  },
  ELDR_REFIT_REFUSED: {
    status: 409,
    type: 'invalid_request_error',
    message: 'The clusters cannot be fitted anew.',
  },
  ELDR_BODY_TOO_LARGE: {
    status: 413,
    type: 'invalid_request_error',
    message: 'The request body is too large.',
  },
  ELDR_ARTIFACT_BAD: { status: 422, type: 'invalid_request_error', message: 'The artifact cannot be used.' },
  ELDR_OVERLOADED: { status: 429, type: 'server_error', message: 'The gateway is full; try again later.' },
  ELDR_INTERNAL: {
    status: 500,
    type: 'server_error',
    message: 'The gateway failed; its log says more under this request id.',
  },
  ELDR_PREFILL_FAILED: {
    status: 502,
    type: 'server_error',
    message: 'Reading the prompt failed on every worker tried.',
  },
  ELDR_HANDOFF_BAD: {
    status: 502,
    type: 'server_error',
    message: 'The prompt was read, but no worker gave a usable hand-off.',
  },
  ELDR_DECODE_FAILED: {
    status: 502,
    type: 'server_error',
    message: 'Generation failed on every worker tried.',
  },
  ELDR_STREAM_BROKEN: {
    status: 502,
    type: 'server_error',
    message: 'Generation ended early: the worker failed in mid-stream.',
  },
  ELDR_NO_PREFILL_WORKER: { status: 503, type: 'server_error', message: 'No worker can read prompts now.' },
  ELDR_NO_DECODE_WORKER: { status: 503, type: 'server_error', message: 'No worker can generate now.' },
  ELDR_DRAINING: { status: 503, type: 'server_error', message: 'The gateway is stopping; ask another.' },
  ELDR_QUEUE_TIMEOUT: {
    status: 503,
    type: 'server_error',
    message: 'The request waited too long for its turn.',
  },
  ELDR_OWNER_AWAY: {
    status: 503,
    type: 'server_error',
    message: 'The process that decides is being replaced; try again.',
  },
  ELDR_PREFILL_TIMEOUT: { status: 504, type: 'server_error', message: 'Reading the prompt took too long.' },
  ELDR_DECODE_TIMEOUT: { status: 504, type: 'server_error', message: 'Generation took too long to begin.' },
  ELDR_STREAM_STALLED: {
    status: 504,
    type: 'server_error',
    message: 'Generation ended early: no token came for too long.',
  },
  ELDR_REQUEST_TIMEOUT: {
    status: 504,
    type: 'server_error',
    message: 'The request took longer than it may.',
  },
  ELDR_DEADLINE: {
    status: 504,
    type: 'server_error',
    message: 'The deadline that the client set has passed.',
  },
} as const satisfies Record<string, RefusalKind>

export type RefusalCode = keyof typeof REFUSALS

interface RefusalKind {
  readonly status: number
  readonly type: 'invalid_request_error' | 'server_error'
  readonly message: string
}

/** A request that ends with one of the answers above. Thrown inside of the gateway, never past its edge. */
export class Refusal extends Error {
  readonly code: RefusalCode
  /** In place of the table's sentence. */
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

/** {"error":{…}} as OpenAI's clients read it. */
export function errorBody({ code, words, param }: Refusal): string {
  const { type, message } = REFUSALS[code]
  return JSON.stringify({ error: { message: words ?? message, type, param: param ?? null, code } })
}

/** The same as an event of a stream that has begun. */
export function errorEvent(refusal: Refusal): string {
  return `data: ${errorBody(refusal)}\n\n`
}
