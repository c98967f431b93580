/** Error responses of operations. Responses with the same codes share a component. */
import { REFUSALS, type RefusalCode } from '../../http/refusal.ts'
import type { JsonObject } from './operation.ts'

/** Errors of any request: it is malformed, arrives too slowly, or causes an internal error. */
const ANY_REQUEST = [
  'ELDR_BAD_REQUEST',
  'ELDR_CLIENT_SLOW',
  'ELDR_INTERNAL',
] as const satisfies readonly RefusalCode[]
const RETRY: ReadonlySet<number> = new Set([429, 502, 503, 504])

interface Refused {
  readonly status: string
  readonly name: string
  readonly response: JsonObject
}

function refusedWith(specific: readonly RefusalCode[], fromWorkers: boolean): readonly Refused[] {
  const codes = [...new Set([...ANY_REQUEST, ...specific])]
  const statuses = [...new Set(codes.map(code => REFUSALS[code].status))].sort((a, b) => a - b)
  const own = statuses.map((status): Refused => {
    const those = codes.filter(code => REFUSALS[code].status === status)
    const mayBeWorkers = fromWorkers && status < 500
    return {
      status: String(status),
      name: nameOf(those, mayBeWorkers),
      response: refusal(status, those, mayBeWorkers),
    }
  })
  return [...own, ...RAW, ...(fromWorkers ? [WORKERS] : [])]
}

/** Error responses by status. */
export function refusalsFor(codes: readonly RefusalCode[], fromWorkers: boolean): JsonObject {
  return Object.fromEntries(
    refusedWith(codes, fromWorkers).map(({ status, name }) => [status, ref('responses', name)]),
  )
}

/** Components for all operations. */
export function refusalComponents(
  operations: readonly (readonly [codes: readonly RefusalCode[], fromWorkers: boolean])[],
): JsonObject {
  return Object.fromEntries(
    operations.flatMap(each => refusedWith(...each).map(({ name, response }) => [name, response])),
  )
}

export function ref(kind: 'schemas' | 'headers' | 'responses', name: string): JsonObject {
  return { $ref: `#/components/${kind}/${name}` }
}

/** ELDR_BAD_REQUEST → BadRequest. */
function nameOf(codes: readonly RefusalCode[], mayBeWorkers: boolean): string {
  const words = codes.map(code =>
    code
      .slice('ELDR_'.length)
      .toLowerCase()
      .replace(/(^|_)(.)/g, (_, __, letter: string) => letter.toUpperCase()),
  )
  return `${words.join('_')}${mayBeWorkers ? '_OrWorkers' : ''}`
}

function refusal(status: number, codes: readonly RefusalCode[], mayBeWorkers: boolean): JsonObject {
  return {
    description: codes.map(code => `${code}: ${REFUSALS[code].message}`).join(' '),
    headers: {
      // A malformed request has no id.
      ...(status !== 408 && status !== 400 && { 'X-Request-Id': ref('headers', 'RequestId') }),
      'X-Eldr-Error-Code': ref('headers', 'ErrorCode'),
      ...(RETRY.has(status) && { 'Retry-After': ref('headers', 'RetryAfter') }),
      ...(status === 401 && { 'WWW-Authenticate': ref('headers', 'Authenticate') }),
    },
    content: { 'application/json': errorMedia(codes, mayBeWorkers) },
  }
}

function errorMedia(codes: readonly RefusalCode[], mayBeWorkers: boolean): JsonObject {
  const schema = mayBeWorkers
    ? { anyOf: [ref('schemas', 'Error'), ref('schemas', 'WorkerError')] }
    : ref('schemas', 'Error')
  const examples = codes.map(code => {
    const { message, type } = REFUSALS[code]
    return [code, { value: { error: { message, type, param: null, code } } }]
  })
  return { schema, examples: Object.fromEntries(examples) as JsonObject }
}

const raw = (status: string, name: string, description: string): Refused => ({
  status,
  name,
  response: { description, content: { 'application/json': { schema: ref('schemas', 'Error') } } },
})
/** Errors that Node's HTTP parser sends by itself. */
const RAW = [
  raw('417', 'ExpectationFailed', 'The only supported Expect value is 100-continue.'),
  raw('431', 'HeadersTooLarge', 'The headers are too large.'),
]

const WORKERS: Refused = {
  status: '4XX',
  name: 'WorkersRefusal',
  response: {
    description: '4xx response of a worker, unchanged.',
    headers: { 'X-Request-Id': ref('headers', 'RequestId'), Allow: ref('headers', 'Allow') },
    content: { 'application/json': { schema: ref('schemas', 'WorkerError') } },
  },
}
