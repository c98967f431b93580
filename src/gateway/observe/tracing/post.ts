/** One request to a collector, and what its answer means to OTLP. */
import { Pool } from 'undici'
import type { TraceSettings } from '../../config/settings.ts'

export type Posted =
  /** `rejected`: spans that the collector did not want. */
  | { readonly kind: 'taken'; readonly rejected: number; readonly words: string | undefined }
  /** `again`: it may go well another time, after `afterMs` where the collector says so. */
  | {
      readonly kind: 'failed'
      readonly why: string
      readonly again: boolean
      readonly afterMs: number | undefined
    }

export interface OtlpPost {
  /** Never rejects. */
  send(body: string, stop: AbortSignal): Promise<Posted>
  close(): Promise<void>
}

const PATH = '/v1/traces'
/** Those that the specification calls passing. */
const PASSING = new Set([429, 502, 503, 504])
const MOST_ANSWER_BYTES = 64 << 10
const MOST_WORDS = 200

export function createPost({
  endpoint,
  headers,
  timeoutMs,
}: { readonly endpoint: string } & Pick<TraceSettings, 'headers' | 'timeoutMs'>): OtlpPost {
  const { origin, pathname } = new URL(endpoint)
  const base = pathname.replace(/\/+$/, '')
  const path = base.endsWith(PATH) ? base : `${base}${PATH}`
  // One connection is enough: there is one batch at a time.
  const pool = new Pool(origin, { connections: 1, pipelining: 1, connect: { timeout: timeoutMs } })
  const all = { ...Object.fromEntries(headers.map(named)), 'content-type': 'application/json' }

  async function exchange(body: string, signal: AbortSignal): Promise<Posted> {
    const answer = await pool.request({ path, method: 'POST', headers: all, body, signal })
    const text = await textOf(answer.body)
    const { statusCode: status } = answer
    if (status >= 200 && status < 300) return taken(text)
    return {
      kind: 'failed',
      why: `status ${status}`,
      again: PASSING.has(status),
      afterMs: secondsOf(answer.headers['retry-after']),
    }
  }

  return {
    async send(body, stop) {
      const timeout = AbortSignal.timeout(timeoutMs)
      try {
        return await exchange(body, AbortSignal.any([stop, timeout]))
      } catch (error) {
        const why = timeout.aborted
          ? `no answer within ${timeoutMs} ms`
          : stop.aborted
            ? 'the gateway ends'
            : wordsOf(error)
        return { kind: 'failed', why, again: true, afterMs: undefined }
      }
    },
    close: () => pool.destroy(),
  }
}

function named(header: string): [string, string] {
  const at = header.indexOf('=')
  return [header.slice(0, at).toLowerCase(), header.slice(at + 1)]
}

async function textOf(body: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of body) {
    bytes += chunk.length
    if (bytes > MOST_ANSWER_BYTES) break // which closes the connection
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}

/** All was taken unless the answer says otherwise; one that cannot be read says nothing. */
function taken(text: string): Posted {
  let partial: { rejectedSpans?: unknown; errorMessage?: unknown } | undefined
  try {
    partial = (JSON.parse(text) as { partialSuccess?: typeof partial } | null)?.partialSuccess
  } catch {}
  const rejected = Number(partial?.rejectedSpans ?? 0)
  const words = partial?.errorMessage
  return {
    kind: 'taken',
    rejected: Number.isSafeInteger(rejected) && rejected > 0 ? rejected : 0,
    words: typeof words === 'string' && words !== '' ? words.slice(0, MOST_WORDS) : undefined,
  }
}

function secondsOf(header: string | string[] | undefined): number | undefined {
  return typeof header === 'string' && /^\d{1,6}$/.test(header) ? Number(header) * 1_000 : undefined
}

/** Neither address nor headers stand in the messages of these errors; their codes say enough. */
function wordsOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException
  return code ?? message ?? 'unknown'
}
