/** Addresses of workers and of a collector, checked; those of workers in one spelling. */

export const ORIGIN_EXAMPLE = 'http://10.0.0.7:8000'
export const ENDPOINT_EXAMPLE = 'http://collector:4318'

/** What is wrong with a text as the origin of a worker; undefined when nothing. It never repeats a password. */
export function wrongOrigin(text: string): string | undefined {
  const url = httpUrl(text, ORIGIN_EXAMPLE)
  if (typeof url === 'string') return url
  if (url.username !== '' || url.password !== '')
    return 'expected no user and no password in the URL: set workers.apiKey, or ELDR_WORKER_API_KEY, if workers ask for a key'
  if (url.pathname !== '/' || url.search !== '' || url.hash !== '')
    return `expected no path: ${url.origin} is enough, since requests bring their own`
  return undefined
}

/** Ranks of one URL; a number of 0 to one less. */
export const MAX_RANKS = 1_024
const RANK_WORDS = `a data-parallel rank behind @ is a whole number from 0 to ${MAX_RANKS - 1}, such as ${ORIGIN_EXAMPLE}@2`

interface WorkerUrl {
  readonly url: string
  readonly dpRank?: number
}

/** http://host:8000@2 is the engine of rank 2 behind http://host:8000. To a URL it is a user, which no worker has. */
function splitRank(text: string): WorkerUrl {
  const ranked = /^(https?:\/\/[^@/?#]+)@(0|[1-9]\d*)$/i.exec(text)
  return ranked === null ? { url: text } : { url: ranked[1]!, dpRank: Number(ranked[2]) }
}

/** What is wrong with a text as the URL of a worker, maybe with a rank; undefined when nothing. */
export function wrongWorkerUrl(text: string): string | undefined {
  const { url, dpRank } = splitRank(text)
  if (dpRank !== undefined && dpRank >= MAX_RANKS) return `the rank is too large: ${RANK_WORDS}`
  const wrong = wrongOrigin(url)
  // What has a port behind the @ is a host, and what stands before it a user.
  return wrong !== undefined && /@[^@:]*$/.test(text) ? `${wrong}; ${RANK_WORDS}` : wrong
}

/** Of one that nothing is wrong with: its origin, and its rank where it has one. */
export function workerUrlOf(text: string): WorkerUrl {
  const { url, ...rank } = splitRank(text)
  return { url: originOf(url), ...rank }
}

/** What is wrong with a text as the address of a collector; undefined when nothing. */
export function wrongEndpoint(text: string): string | undefined {
  const url = httpUrl(text, ENDPOINT_EXAMPLE)
  if (typeof url === 'string') return url
  if (url.username !== '' || url.password !== '')
    return 'expected no user and no password in the URL: set observe.traces.headers, or OTEL_EXPORTER_OTLP_HEADERS, if the collector asks for them'
  if (url.search !== '' || url.hash !== '') return 'expected nothing behind the path of the URL'
  return undefined
}

/** A sentence instead says what is wrong. */
function httpUrl(text: string, example: string): URL | string {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url !== undefined && (url.protocol === 'http:' || url.protocol === 'https:')) return url
  // localhost:8000 is a URL too, of the scheme localhost.
  const bare = /^[\w.-]+(:\d+)?$/.test(text) || /^\[[\da-fA-F:]+\](:\d+)?$/.test(text)
  if (bare) return `expected http:// or https:// before it: did you mean http://${text}?`
  const scheme = url === undefined || url.host === '' ? '' : `, found the scheme ${url.protocol.slice(0, -1)}`
  return `expected an http or https URL such as ${example}${scheme}`
}

export const originOf = (text: string): string => new URL(text).origin

/** host:port, always with the port: the name that a worker has unless it is given one. */
export function addressOf(text: string): string {
  const { hostname, port, protocol } = new URL(text)
  return `${hostname}:${port || (protocol === 'https:' ? '443' : '80')}`
}

/** Of a Kubernetes API, which may stand behind a path. */
export function wrongApiUrl(text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url === undefined || !['http:', 'https:'].includes(url.protocol))
    return 'expected an http or https URL such as https://10.0.0.1:6443'
  if (url.username !== '' || url.password !== '')
    return 'expected no user and no password in the URL: give a token file'
  return url.search !== '' || url.hash !== '' ? 'expected nothing behind the path' : undefined
}
