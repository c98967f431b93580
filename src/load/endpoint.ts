/** An OpenAI-compatible server to send requests to. */
import { Agent, Pool, request } from 'undici'
import { EldrError } from '../errors.ts'

export type Api = 'completions' | 'chat'

export interface EndpointSpec {
  /** With or without a path; `/v1` is added where it is missing. */
  readonly url: string
  readonly api: Api
  readonly apiKey?: string
  /** Accept TLS certificates that cannot be verified. */
  readonly insecure?: boolean
  /** Extra headers of every request: alternating names and values. */
  readonly headers?: readonly string[]
}

export interface Endpoint {
  readonly spec: EndpointSpec
  readonly origin: string
  /** Path of the API's root, such as `/v1`. */
  readonly root: string
  /** Path for generation, such as `/v1/completions`. */
  readonly path: string
  readonly pool: Pool
  close(): Promise<void>
}

const CONNECT_TIMEOUT_MS = 10_000
const FETCH_TIMEOUT_MS = 10_000
/** Far above the size of any expected response. */
const MAX_FETCH_BYTES = 1 << 20

export function openEndpoint(spec: EndpointSpec): Endpoint {
  const { origin, root } = addressOf(spec.url)
  // Every stream has its own connection. The run, not the pool, decides how long a request may wait for
  // tokens.
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
      found: `URL ${JSON.stringify(url)}`,
      expected: 'a URL such as http://127.0.0.1:8000',
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
      found: `URL ${parsed.protocol}//${parsed.host}…`,
      expected: 'http or https, a host and optionally a path',
      todo: 'Remove credentials, query and fragment; pass a key with --api-key.',
    })
  const path = parsed.pathname.replace(/\/+$/, '')
  return { origin: parsed.origin, root: /\/v\d+$/.test(path) ? path : `${path}/v1` }
}

/** Alternating names and values, the fastest form for undici. */
export function headersOf({ apiKey }: EndpointSpec): string[] {
  const headers = ['content-type', 'application/json', 'accept', 'text/event-stream']
  return apiKey === undefined ? headers : [...headers, 'authorization', `Bearer ${apiKey}`]
}

/**
 * Returns the first model that the server lists. While the server is unreachable or busy, retries as long as
 * `retry` resolves to true.
 */
export async function firstModel(
  endpoint: Endpoint,
  retry: (failures: number) => Promise<boolean> = async () => false,
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
      if (!isBusy || !(await retry(failures))) throw noModel(endpoint, status)
    } catch (error) {
      const isUnreachable = error instanceof EldrError && error.code === 'ELDR_ENDPOINT_UNREACHABLE'
      if (!isUnreachable || !(await retry(failures))) throw error
    }
  }
}

function noModel(endpoint: Endpoint, status: number): EldrError {
  return new EldrError('ELDR_ENDPOINT_FAILED', {
    found: `status ${status} and no model from ${endpoint.origin}${endpoint.root}/models`,
    expected: 'a list of models',
    todo: 'Pass the model with --model and, if the server needs one, a key with --api-key.',
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

/** One small request that is not part of the load: reads something or changes a setting. */
export async function fetchText(
  { apiKey, insecure, headers: more = [] }: Pick<EndpointSpec, 'apiKey' | 'insecure' | 'headers'>,
  method: 'GET' | 'POST' | 'PUT' | 'DELETE',
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
    const limits = { headersTimeout: FETCH_TIMEOUT_MS, bodyTimeout: FETCH_TIMEOUT_MS }
    const response = await request(url, {
      method,
      headers,
      dispatcher,
      ...limits,
      body: body && JSON.stringify(body),
    })
    return { status: response.statusCode, text: await textOf(response.body, url) }
  } catch (cause) {
    if (cause instanceof EldrError) throw cause
    const why =
      cause instanceof Error ? cause.message || String((cause as NodeJS.ErrnoException).code) : String(cause)
    throw new EldrError('ELDR_ENDPOINT_UNREACHABLE', {
      found: `${why} at ${url}`,
      expected: 'a response',
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
    if (bytes > MAX_FETCH_BYTES)
      throw new EldrError('ELDR_ENDPOINT_FAILED', {
        found: `a response of more than ${MAX_FETCH_BYTES} bytes from ${url}`,
        expected: 'a smaller response',
      })
  }
  return Buffer.concat(chunks).toString('utf8')
}
