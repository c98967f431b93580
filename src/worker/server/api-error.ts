/** Failures as vLLM's server answers them: a status, and `{"error": {message, type, param, code}}`. */

export class ApiError extends Error {
  override name = 'ApiError'
  readonly status: number
  readonly type: string
  readonly param: string | null
  /** When it may be asked again, where that is of use. */
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

/** The request makes no sense for this model or this worker. */
export function badRequest(message: string, param?: string): ApiError {
  return new ApiError(400, message, { param: param ?? null })
}

/** The body is not of the shape that the route takes. vLLM's checks of shapes have another type than its checks of values. */
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
