/** Where requests go: an OpenAI-compatible server, by its address. Names its model when nobody else does. */
import { Agent, Pool, request } from 'undici'
import { EldrError } from '../errors.ts'

export type Api = 'completions' | 'chat'

export interface EndpointSpec {
  /** With or without a path; `/v1` is added where it is missing. */
  readonly url: string
  readonly api: Api
  readonly apiKey?: string
  /** Whether certificates that nobody vouches for are taken. */
  readonly insecure?: boolean
  /** Of every request beside the key: names and values in turn. */
  readonly headers?: readonly string[]
}

export interface Endpoint {
  readonly spec: EndpointSpec
  readonly origin: string
  /** Of the API's root, such as `/v1`. */
  readonly root: string
  /** Of generation, such as `/v1/completions`. */
  readonly path: string
  readonly pool: Pool
  close(): Promise<void>
}

const CONNECT_TIMEOUT_MS = 10_000
const LOOK_TIMEOUT_MS = 10_000
/** Far above what servers answer to a look. */
const MOST_LOOK_BYTES = 1 << 20

export function openEndpoint(spec: EndpointSpec): Endpoint {
  const { origin, root } = addressOf(spec.url)
  // Every stream has a connection of its own, and a request waits for its tokens as long as the run lets it.
  const connect = { timeout: CONNECT_TIMEOUT_MS, rejectUnauthorized: spec.insecure !== true }
  const pool = new Pool(origin, {
    connections: null,
    pipelining: 1,
    headersTimeout: 0,
    bodyTimeout: 0,
    connect,
  })
  const path = `${root}/${spec.api === 'chat' ? 'chat/completions' : 'completions'}`
  return { spec, origin, root, path, pool, close: () => pool.destroy() }
}

/** `http://host:8000/` → http://host:8000 and /v1. */
export function addressOf(url: string): { origin: string; root: string } {
  let parsed: URL
  try {
    parsed = new URL(url)
  } catch (cause) {
    throw new EldrError('ELDR_USAGE', {
      found: `the address ${JSON.stringify(url)}`,
      expected: 'such as http://127.0.0.1:8000',
      cause,
    })
  }
  if (
    !/^https?:$/.test(parsed.protocol) ||
    parsed.username !== '' ||
    parsed.search !== '' ||
    parsed.hash !== ''
  )
    throw new EldrError('ELDR_USAGE', {
      found: `the address ${parsed.protocol}//${parsed.host}…`,
      expected: 'http or https, a host and at most a path',
      todo: 'Give a key with --api-key, and nothing else in the address.',
    })
  const path = parsed.pathname.replace(/\/+$/, '')
  return { origin: parsed.origin, root: /\/v\d+$/.test(path) ? path : `${path}/v1` }
}

/** As undici takes them fastest: names and values in turn. */
export function headersOf({ apiKey }: EndpointSpec): string[] {
  const headers = ['content-type', 'application/json', 'accept', 'text/event-stream']
  return apiKey === undefined ? headers : [...headers, 'authorization', `Bearer ${apiKey}`]
}

/** The first model that the server names. A server that is away or busy is asked again as long as `again` says so. */
export async function firstModel(
  endpoint: Endpoint,
  again: (failures: number) => Promise<boolean> = async () => false,
): Promise<string> {
  for (let failures = 0; ; failures++) {
    try {
      const { status, text } = await fetchText(
        endpoint.spec,
        'GET',
        `${endpoint.origin}${endpoint.root}/models`,
      )
      const id = status === 200 ? modelIn(text) : undefined
      if (id !== undefined) return id
      const isBusy = status === 429 || (status >= 500 && status !== 501)
      if (!isBusy || !(await again(failures))) throw noModel(endpoint, status)
    } catch (error) {
      const isAway = error instanceof EldrError && error.code === 'ELDR_ENDPOINT_UNREACHABLE'
      if (!isAway || !(await again(failures))) throw error
    }
  }
}

function noModel(endpoint: Endpoint, status: number): EldrError {
  return new EldrError('ELDR_ENDPOINT_FAILED', {
    found: `status ${status} and no model from ${endpoint.origin}${endpoint.root}/models`,
    expected: 'a list of models',
    todo: 'Name the model with --model, and the key, where one is needed, with --api-key.',
  })
}

function modelIn(text: string): string | undefined {
  try {
    const { data } = JSON.parse(text) as { data?: { id?: unknown }[] }
    const id = data?.[0]?.id
    return typeof id === 'string' ? id : undefined
  } catch {
    return undefined
  }
}

/** One small request aside from the load: to look something up or to change a setting. */
export async function fetchText(
  { apiKey, insecure, headers: more = [] }: Pick<EndpointSpec, 'apiKey' | 'insecure' | 'headers'>,
  method: 'GET' | 'POST' | 'PUT',
  url: string,
  body?: object,
): Promise<{ status: number; text: string }> {
  const dispatcher = new Agent({
    connect: { timeout: CONNECT_TIMEOUT_MS, rejectUnauthorized: insecure !== true },
  })
  const headers = [
    'content-type',
    'application/json',
    ...(apiKey === undefined ? [] : ['authorization', `Bearer ${apiKey}`]),
    ...more,
  ]
  try {
    const limits = { headersTimeout: LOOK_TIMEOUT_MS, bodyTimeout: LOOK_TIMEOUT_MS }
    const answer = await request(url, {
      method,
      headers,
      dispatcher,
      ...limits,
      ...(body && { body: JSON.stringify(body) }),
    })
    return { status: answer.statusCode, text: await textOf(answer.body, url) }
  } catch (cause) {
    if (cause instanceof EldrError) throw cause
    const why =
      cause instanceof Error ? cause.message || String((cause as NodeJS.ErrnoException).code) : String(cause)
    throw new EldrError('ELDR_ENDPOINT_UNREACHABLE', {
      found: `${why} at ${url}`,
      expected: 'an answer',
      cause,
    })
  } finally {
    await dispatcher.destroy()
  }
}

async function textOf(body: AsyncIterable<Uint8Array>, url: string): Promise<string> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of body) {
    chunks.push(chunk)
    bytes += chunk.length
    if (bytes > MOST_LOOK_BYTES)
      throw new EldrError('ELDR_ENDPOINT_FAILED', {
        found: `an answer of more than ${MOST_LOOK_BYTES} bytes from ${url}`,
        expected: 'less',
      })
  }
  return Buffer.concat(chunks).toString('utf8')
}
