/** Errors in vLLM’s format: a status, and `{"error": {message, type, param, code}}`. */

export class ApiError extends Error {
  override name = 'ApiError'
  readonly status: number
  readonly type: string
  readonly param: string | null
  /** When to retry, if that is useful. */
  readonly retryAfterSeconds: number | undefined

  constructor(status: number, message: string, { type, param = null, retryAfterSeconds }: ErrorParts = {}) {
    super(message)
    this.status = status
    this.type = type ?? typeOf(status)
    this.param = param
    this.retryAfterSeconds = retryAfterSeconds
  }
}

interface ErrorParts {
  readonly type?: string
  readonly param?: string | null
  readonly retryAfterSeconds?: number
}

const TYPES: Readonly<Record<number, string>> = {
  400: 'BadRequestError',
  404: 'NotFoundError',
  500: 'InternalServerError',
  501: 'NotImplementedError',
  503: 'ServiceUnavailableError',
}

function typeOf(status: number): string {
  return TYPES[status] ?? 'InternalServerError'
}

/** The request is invalid for this model or this worker. */
export function badRequest(message: string, param?: string): ApiError {
  return new ApiError(400, message, { param: param ?? null })
}

/**
 * The body does not have the shape of the route. vLLM’s shape checks use another error type than its value
 * checks.
 */
export function badShape(kind: string, path: readonly (string | number)[], message: string): ApiError {
  const place = ['body', ...path]
    .map(part => (typeof part === 'number' ? String(part) : `'${part}'`))
    .join(', ')
  const param = path.length > 0 ? String(path[0]) : null
  return new ApiError(
    400,
    `1 validation error:\n  {'type': '${kind}', 'loc': (${place}), 'msg': '${message}'}`,
    {
      type: 'Bad Request',
      param,
    },
  )
}

export function errorBody({
  status,
  message,
  type,
  param,
}: Pick<ApiError, 'status' | 'message' | 'type' | 'param'>): string {
  return JSON.stringify({ error: { message, type, param, code: status } })
}
