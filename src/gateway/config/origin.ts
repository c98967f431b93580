/** Validates and normalises URLs of workers, of the trace collector and of the Kubernetes API. */

export const ORIGIN_EXAMPLE = 'http://10.0.0.7:8000'
export const ENDPOINT_EXAMPLE = 'http://collector:4318'

/** Why a text is not a worker origin; undefined if it is one. Never contains a password. */
export function originProblem(text: string): string | undefined {
  const parsed = httpUrl(text, ORIGIN_EXAMPLE)
  if (parsed.kind === 'invalid') return parsed.why
  const { url } = parsed
  if (url.username !== '' || url.password !== '')
    return 'expected no user or password in the URL: if workers need a key, set workers.apiKey or ELDR_WORKER_API_KEY'
  if (url.pathname !== '/' || url.search !== '' || url.hash !== '')
    return `expected no path, only ${url.origin}`
  return undefined
}

/** Max number of data-parallel ranks per server. */
export const MAX_RANKS = 1_024
const RANK_EXPECTED = `a data-parallel rank after @ is a whole number from 0 to ${MAX_RANKS - 1}, such as ${ORIGIN_EXAMPLE}@2`

interface WorkerUrl {
  readonly url: string
  readonly dpRank?: number
}

/**
 * http://host:8000@2 is rank 2 of the server http://host:8000. A URL parser would take the host for a user
 * name.
 */
function splitRank(text: string): WorkerUrl {
  const ranked = /^(https?:\/\/[^@/?#]+)@(0|[1-9]\d*)$/i.exec(text)
  return ranked === null ? { url: text } : { url: ranked[1]!, dpRank: Number(ranked[2]) }
}

/** Why a text is not a worker URL, with or without a rank; undefined if it is one. */
export function workerUrlProblem(text: string): string | undefined {
  const { url, dpRank } = splitRank(text)
  if (dpRank !== undefined && dpRank >= MAX_RANKS) return `rank too large: ${RANK_EXPECTED}`
  const problem = originProblem(url)
  // With a port after the @, the user meant USER@HOST and not a rank.
  return problem !== undefined && /@[^@:]*$/.test(text) ? `${problem}; ${RANK_EXPECTED}` : problem
}

/** Splits a valid worker URL into origin and rank. */
export function workerUrlOf(text: string): WorkerUrl {
  const { url, ...rank } = splitRank(text)
  return { url: originOf(url), ...rank }
}

/** Why a text is not the URL of a trace collector; undefined if it is one. */
export function endpointProblem(text: string): string | undefined {
  const parsed = httpUrl(text, ENDPOINT_EXAMPLE)
  if (parsed.kind === 'invalid') return parsed.why
  const { url } = parsed
  if (url.username !== '' || url.password !== '')
    return 'expected no user or password in the URL: if the collector needs them, set observe.traces.headers or OTEL_EXPORTER_OTLP_HEADERS'
  if (url.search !== '' || url.hash !== '') return 'expected nothing after the path of the URL'
  return undefined
}

type HttpUrl = { readonly kind: 'ok'; readonly url: URL } | { readonly kind: 'invalid'; readonly why: string }

function httpUrl(text: string, example: string): HttpUrl {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url !== undefined && (url.protocol === 'http:' || url.protocol === 'https:')) return { kind: 'ok', url }
  // A URL parser accepts localhost:8000 as a URL with the scheme localhost.
  const bare = /^[\w.-]+(:\d+)?$/.test(text) || /^\[[\da-fA-F:]+\](:\d+)?$/.test(text)
  if (bare)
    return { kind: 'invalid', why: `expected http:// or https:// at the start: did you mean http://${text}?` }
  const scheme = url === undefined || url.host === '' ? '' : `, found the scheme ${url.protocol.slice(0, -1)}`
  return { kind: 'invalid', why: `expected an http or https URL such as ${example}${scheme}` }
}

export const originOf = (text: string): string => new URL(text).origin

/** host:port, always with the port: the default id of a worker. */
export function addressOf(text: string): string {
  const { hostname, port, protocol } = new URL(text)
  return `${hostname}:${port || (protocol === 'https:' ? '443' : '80')}`
}

/** Why a text is not the URL of a Kubernetes API, which may have a path; undefined if it is one. */
export function apiUrlProblem(text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url === undefined || !['http:', 'https:'].includes(url.protocol))
    return 'expected an http or https URL such as https://10.0.0.1:6443'
  if (url.username !== '' || url.password !== '')
    return 'expected no user or password in the URL: set a token file'
  return url.search !== '' || url.hash !== '' ? 'expected nothing after the path' : undefined
}
