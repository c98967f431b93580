/**
 * A trace collector for tests, on real sockets. It reads OTLP's JSON as strictly as opentelemetry-proto
 * defines it, and any error fails the test.
 */
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface ReceivedSpan {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId: string | undefined
  readonly traceState: string | undefined
  readonly flags: number
  readonly name: string
  readonly kind: 'internal' | 'server' | 'client'
  readonly startNanos: bigint
  readonly endNanos: bigint
  readonly attributes: Readonly<Record<string, string | number | boolean>>
  readonly events: readonly { readonly name: string; readonly nanos: bigint }[]
  readonly error: string | undefined
}

export interface Received {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly resource: Readonly<Record<string, string | number | boolean>>
  readonly spans: readonly ReceivedSpan[]
}

export interface OtlpReceiver {
  readonly url: string
  readonly requests: readonly Received[]
  readonly spans: readonly ReceivedSpan[]
  /** How it responds (default: 200 and {}). */
  answer: (response: ServerResponse) => void
  /** Resolves when the received spans are as wanted; rejects if a request was invalid. */
  until(wanted: () => boolean): Promise<void>
  /** The spans of the trace of this request, once they are there. */
  traceOf(requestId: string): Promise<Tree>
  close(): Promise<void>
}

export interface Tree {
  readonly root: ReceivedSpan
  /** In the order of their starts. */
  readonly children: readonly ReceivedSpan[]
  readonly all: readonly ReceivedSpan[]
}

export async function startReceiver(): Promise<OtlpReceiver> {
  const requests: Received[] = []
  const waiting = new Set<() => void>()
  let wrong: unknown
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      try {
        if (request.method !== 'POST') throw new Error(`method ${request.method}`)
        if (request.headers['content-type'] !== 'application/json')
          throw new Error(`type ${request.headers['content-type']}`)
        const read = readExport(JSON.parse(Buffer.concat(chunks).toString('utf8')))
        requests.push({ path: request.url ?? '', headers: request.headers, ...read })
      } catch (error) {
        wrong ??= error
      }
      receiver.answer(response)
      for (const look of waiting) look()
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const receiver: OtlpReceiver = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    get spans() {
      return requests.flatMap(({ spans }) => spans)
    },
    answer: response => response.writeHead(200, { 'content-type': 'application/json' }).end('{}'),
    until: wanted =>
      new Promise((resolve, reject) => {
        const look = () => {
          if (wrong === undefined && !wanted()) return
          waiting.delete(look)
          if (wrong === undefined) resolve()
          else reject(wrong as Error)
        }
        waiting.add(look)
        look()
      }),
    async traceOf(requestId) {
      const root = () => receiver.spans.find(({ attributes }) => attributes['eldr.request_id'] === requestId)
      await receiver.until(() => root() !== undefined)
      return treeOf(root()!, receiver.spans)
    },
    async close() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
  return receiver
}

function treeOf(root: ReceivedSpan, spans: readonly ReceivedSpan[]): Tree {
  const all = spans.filter(({ traceId }) => traceId === root.traceId)
  const children = all
    .filter(span => span !== root)
    .toSorted((a, b) => (a.startNanos < b.startNanos ? -1 : a.startNanos > b.startNanos ? 1 : 0))
  return { root, children, all }
}

type Json = Record<string, unknown>

/** An object with these keys and no others; those with ? may be missing. */
function fields(value: unknown, what: string, keys: readonly string[]): Json {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new Error(`${what} is no object`)
  const known = new Set(keys.map(key => key.replace('?', '')))
  for (const key of Object.keys(value))
    if (!known.has(key)) throw new Error(`${what} has an unknown field ${key}`)
  for (const key of keys) if (!key.endsWith('?') && !(key in value)) throw new Error(`${what} lacks ${key}`)
  return value as Json
}

function list(value: unknown, what: string): unknown[] {
  if (!Array.isArray(value)) throw new Error(`${what} is no list`)
  return value
}

function only<T>(items: readonly T[], what: string): T {
  if (items.length !== 1) throw new Error(`${items.length} of ${what}`)
  return items[0]!
}

function hex(value: unknown, digits: number, what: string): string {
  if (typeof value !== 'string' || !new RegExp(`^[0-9a-f]{${digits}}$`).test(value) || /^0+$/.test(value))
    throw new Error(`${what} is ${String(value)}`)
  return value
}

function text(value: unknown, what: string): string {
  if (typeof value !== 'string') throw new Error(`${what} is no text`)
  return value
}

/** 64-bit numbers are strings in protobuf's JSON. */
function int64(value: unknown, what: string): bigint {
  if (typeof value !== 'string' || !/^-?\d{1,20}$/.test(value))
    throw new Error(`${what} is ${JSON.stringify(value)}, not a 64-bit number as text`)
  return BigInt(value)
}

function attributesOf(value: unknown, what: string): Record<string, string | number | boolean> {
  const pairs = list(value, what).map((item): [string, string | number | boolean] => {
    const { key, value: any } = fields(item, what, ['key', 'value'])
    const [[kind, inner]] = Object.entries(
      fields(any, what, ['stringValue?', 'intValue?', 'doubleValue?', 'boolValue?']),
    ) as [[string, unknown]]
    if (Object.keys(any as object).length !== 1) throw new Error(`${what}: several values`)
    if (kind === 'intValue') return [text(key, what), Number(int64(inner, `${what} ${String(key)}`))]
    if (
      typeof inner !==
      ({ stringValue: 'string', doubleValue: 'number', boolValue: 'boolean' } as Record<string, string>)[kind]
    )
      throw new Error(`${what}: ${kind} ${String(inner)}`)
    return [text(key, what), inner as string]
  })
  const values = Object.fromEntries(pairs)
  if (Object.keys(values).length !== pairs.length)
    throw new Error(`${what}: an attribute twice in ${JSON.stringify(pairs)}`)
  return values
}

export function readExport(body: unknown): Pick<Received, 'resource' | 'spans'> {
  const { resourceSpans } = fields(body, 'the request', ['resourceSpans'])
  const of = fields(only(list(resourceSpans, 'resourceSpans'), 'resourceSpans'), 'resourceSpans', [
    'resource',
    'scopeSpans',
  ])
  const scope = fields(only(list(of['scopeSpans'], 'scopeSpans'), 'scopeSpans'), 'scopeSpans', [
    'scope',
    'spans',
  ])
  const { name, version } = fields(scope['scope'], 'scope', ['name', 'version'])
  text(name, 'scope.name')
  text(version, 'scope.version')
  const { attributes } = fields(of['resource'], 'resource', ['attributes'])
  return {
    resource: attributesOf(attributes, 'resource'),
    spans: list(scope['spans'], 'spans').map(readSpan),
  }
}

const KINDS = [undefined, 'internal', 'server', 'client'] as const
const SPAN = [
  'traceId',
  'spanId',
  'traceState?',
  'parentSpanId?',
  'flags',
  'name',
  'kind',
  'startTimeUnixNano',
  'endTimeUnixNano',
  'attributes',
  'events?',
  'status?',
]

function readSpan(value: unknown): ReceivedSpan {
  const span = fields(value, 'a span', SPAN)
  const kind = KINDS[span['kind'] as number]
  if (kind === undefined) throw new Error(`kind ${String(span['kind'])}`)
  if (!Number.isInteger(span['flags'])) throw new Error(`flags ${String(span['flags'])}`)
  const status =
    span['status'] === undefined ? undefined : fields(span['status'], 'status', ['code', 'message'])
  if (status !== undefined && status['code'] !== 2) throw new Error(`status ${String(status['code'])}`)
  return {
    traceId: hex(span['traceId'], 32, 'traceId'),
    spanId: hex(span['spanId'], 16, 'spanId'),
    parentSpanId:
      span['parentSpanId'] === undefined ? undefined : hex(span['parentSpanId'], 16, 'parentSpanId'),
    traceState: span['traceState'] === undefined ? undefined : text(span['traceState'], 'traceState'),
    flags: span['flags'] as number,
    name: text(span['name'], 'name'),
    kind,
    startNanos: int64(span['startTimeUnixNano'], 'startTimeUnixNano'),
    endNanos: int64(span['endTimeUnixNano'], 'endTimeUnixNano'),
    attributes: attributesOf(span['attributes'], `attributes of ${String(span['name'])}`),
    events: list(span['events'] ?? [], 'events').map(item => {
      const event = fields(item, 'an event', ['timeUnixNano', 'name'])
      return { name: text(event['name'], 'event'), nanos: int64(event['timeUnixNano'], 'timeUnixNano') }
    }),
    error: status && text(status['message'], 'message'),
  }
}
