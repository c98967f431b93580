/**
 * New requests at a steady rate, over connections that are kept and over new ones. The client retries
 * nothing, so a connection that is refused or broken is a failure.
 */
import { Agent, request as httpRequest } from 'node:http'
import { Agent as TlsAgent, request as httpsRequest } from 'node:https'

export interface SteadyLoad {
  /** Requests that have ended well. */
  readonly done: number
  /** Stops sending; resolves with what went wrong once the last response has ended. */
  stop(): Promise<{ readonly sent: number; readonly failures: readonly string[] }>
}

export interface LoadOptions {
  readonly perSecond: number
  /** Certificate of the gateway. */
  readonly ca?: Buffer
}

/** Sent in groups: timers are not exact. */
const GROUP_MS = 50

export function steadyLoad(url: string, { perSecond, ca }: LoadOptions): SteadyLoad {
  const isSecure = url.startsWith('https:')
  const kept = isSecure
    ? new TlsAgent({ keepAlive: true, ca, maxSockets: 64 })
    : new Agent({ keepAlive: true, maxSockets: 64 })
  const failures: string[] = []
  const pending = new Set<Promise<void>>()
  const load = { done: 0 }
  let sent = 0
  const send = async () => {
    // Two of three reuse connections.
    const agent = ++sent % 3 === 0 ? false : kept
    try {
      const ended = await streamOnce(url, { agent, ca })
      if (ended === '') load.done++
      else failures.push(ended)
    } catch (error) {
      failures.push(`${(error as NodeJS.ErrnoException).code}: ${(error as Error).message}`)
    }
  }
  const startMs = performance.now()
  const timer = setInterval(() => {
    const due = Math.floor(((performance.now() - startMs) / 1000) * perSecond)
    for (let left = due - sent; left > 0; left--) {
      const one = send().finally(() => pending.delete(one))
      pending.add(one)
    }
  }, GROUP_MS)
  return {
    get done() {
      return load.done
    },
    async stop() {
      clearInterval(timer)
      await Promise.all(pending)
      kept.destroy()
      return { sent, failures }
    },
  }
}

/** Empty if the stream is complete, otherwise what came instead. */
export function streamOnce(
  url: string,
  { agent = false, ca }: { readonly agent?: Agent | TlsAgent | false; readonly ca?: Buffer } = {},
): Promise<string> {
  const body = JSON.stringify({ prompt: 'Once', stream: true, max_tokens: 3 })
  const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }
  const options = { method: 'POST', agent, headers, ...(ca !== undefined && { ca }) }
  return new Promise((resolve, reject) => {
    const to = new URL('/v1/completions', url)
    const sent = url.startsWith('https:') ? httpsRequest(to, options) : httpRequest(to, options)
    sent.once('error', reject)
    sent.once('response', response => {
      let text = ''
      response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk))
      response.once('error', reject)
      response.once('end', () =>
        resolve(
          response.statusCode === 200 && text.trimEnd().endsWith('data: [DONE]')
            ? ''
            : `${response.statusCode} ${text.slice(-200)}`,
        ),
      )
    })
    sent.end(body)
  })
}
