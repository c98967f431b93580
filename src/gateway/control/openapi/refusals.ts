/** What a request is refused with, as responses that operations share: those with the same codes are one component. */
import { REFUSALS, type RefusalCode } from '../../http/refusal.ts'
import type { JsonObject } from './operation.ts'

/** What any request may be refused with: it cannot be read, does not come in time, or meets a fault of ours. */
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

function refusedWith(given: readonly RefusalCode[], fromWorkers: boolean): readonly Refused[] {
  const codes = [...new Set([...ANY_REQUEST, ...given])]
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

/** By status. */
export function refusalsFor(codes: readonly RefusalCode[], fromWorkers: boolean): JsonObject {
  return Object.fromEntries(
    refusedWith(codes, fromWorkers).map(({ status, name }) => [status, ref('responses', name)]),
  )
}

/** Of all operations together. */
export function refusalComponents(
  operations: readonly (readonly [codes: readonly RefusalCode[], fromWorkers: boolean])[],
): JsonObject {
  return Object.fromEntries(
    operations.flatMap(given => refusedWith(...given).map(({ name, response }) => [name, response])),
  )
}

export function ref(kind: 'schemas' | 'headers' | 'responses', name: string): JsonObject {
  return { $ref: `#/components/${kind}/${name}` }
}

/** ELDR_BAD_REQUEST is BadRequest. */
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
      // A request that could not be read has none.
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
/** Heads that Node's parser takes, or does not take, in its own way. */
const RAW = [
  raw('417', 'ExpectationFailed', 'Expect may be 100-continue and nothing else.'),
  raw('431', 'HeadersTooLarge', 'The headers are too large.'),
]

const WORKERS: Refused = {
  status: '4XX',
  name: 'WorkersRefusal',
  response: {
    description: 'What a worker refuses, as it says it.',
    headers: { 'X-Request-Id': ref('headers', 'RequestId'), Allow: ref('headers', 'Allow') },
    content: { 'application/json': { schema: ref('schemas', 'WorkerError') } },
  },
}
