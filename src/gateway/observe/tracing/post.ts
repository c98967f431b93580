/** Sends one export request to a collector and interprets the response as OTLP specifies. */
import { Pool } from 'undici'
import type { TraceSettings } from '../../config/settings.ts'

export type Posted =
  /** `rejected`: number of spans that the collector rejected. */
  | { readonly kind: 'accepted'; readonly rejected: number; readonly message: string | undefined }
  | {
      readonly kind: 'failed'
      readonly why: string
      readonly isRetryable: boolean
      /** From the collector's Retry-After header. */
      readonly retryAfterMs: number | undefined
    }

export interface OtlpPost {
  /** Never rejects. */
  send(body: string, stop: AbortSignal): Promise<Posted>
  close(): Promise<void>
}

const PATH = '/v1/traces'
/** Statuses that the OTLP specification calls retryable. */
const RETRYABLE = new Set([429, 502, 503, 504])
const MAX_RESPONSE_BYTES = 64 << 10
const MAX_MESSAGE_CHARACTERS = 200

export function createPost({
  endpoint,
  headers,
  timeoutMs,
}: { readonly endpoint: string } & Pick<TraceSettings, 'headers' | 'timeoutMs'>): OtlpPost {
  const { origin, pathname } = new URL(endpoint)
  const base = pathname.replace(/\/+$/, '')
  const path = base.endsWith(PATH) ? base : `${base}${PATH}`
  // One connection is enough: batches are sent one at a time.
  const pool = new Pool(origin, { connections: 1, pipelining: 1, connect: { timeout: timeoutMs } })
  const allHeaders = { ...Object.fromEntries(headers.map(parseHeader)), 'content-type': 'application/json' }

  async function exchange(body: string, signal: AbortSignal): Promise<Posted> {
    const response = await pool.request({ path, method: 'POST', headers: allHeaders, body, signal })
    const text = await readText(response.body)
    const { statusCode: status } = response
    if (status >= 200 && status < 300) return accepted(text)
    return {
      kind: 'failed',
      why: `status ${status}`,
      isRetryable: RETRYABLE.has(status),
      retryAfterMs: readRetryAfter(response.headers['retry-after']),
    }
  }

  return {
    async send(body, stop) {
      const timeout = AbortSignal.timeout(timeoutMs)
      try {
        return await exchange(body, AbortSignal.any([stop, timeout]))
      } catch (error) {
        const why = timeout.aborted
          ? `no response within ${timeoutMs} ms`
          : stop.aborted
            ? 'gateway shutting down'
            : describe(error)
        return { kind: 'failed', why, isRetryable: true, retryAfterMs: undefined }
      }
    },
    close: () => pool.destroy(),
  }
}

function parseHeader(header: string): [string, string] {
  const at = header.indexOf('=')
  return [header.slice(0, at).toLowerCase(), header.slice(at + 1)]
}

async function readText(body: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of body) {
    bytes += chunk.length
    if (bytes > MAX_RESPONSE_BYTES) break // closes the connection
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}

/** All spans were accepted unless the response says otherwise. An unreadable response is ignored. */
function accepted(text: string): Posted {
  let partial: { rejectedSpans?: unknown; errorMessage?: unknown } | undefined
  try {
    partial = (JSON.parse(text) as { partialSuccess?: typeof partial } | null)?.partialSuccess
  } catch {}
  const rejected = Number(partial?.rejectedSpans ?? 0)
  const message = partial?.errorMessage
  return {
    kind: 'accepted',
    rejected: Number.isSafeInteger(rejected) && rejected > 0 ? rejected : 0,
    message:
      typeof message === 'string' && message !== '' ? message.slice(0, MAX_MESSAGE_CHARACTERS) : undefined,
  }
}

/** In milliseconds. Dates are ignored. */
function readRetryAfter(header: string | string[] | undefined): number | undefined {
  return typeof header === 'string' && /^\d{1,6}$/.test(header) ? Number(header) * 1_000 : undefined
}

/** The code, or a message; neither contains the address or headers of the collector. */
function describe(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException
  return code ?? message ?? 'unknown'
}
