/** A plain request to an API: status and text. */
import { request as httpRequest } from 'node:http'
import { request as httpsRequest } from 'node:https'

export interface Ask {
  readonly url: string
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
  /** Instead of `body`: bytes, in base64. */
  readonly bytes?: string
  readonly timeoutMs?: number
}

export interface Asked {
  readonly status: number
  readonly text: string
}

/** Rejects without a response. */
export function ask({ url, method = 'GET', headers, body, bytes, timeoutMs = 8_000 }: Ask): Promise<Asked> {
  const content = bytes === undefined ? body : Buffer.from(bytes, 'base64')
  const send = url.startsWith('https:') ? httpsRequest : httpRequest
  return new Promise((resolve, reject) => {
    const signal = AbortSignal.timeout(timeoutMs)
    const length = content === undefined ? {} : { 'content-length': Buffer.byteLength(content) }
    const call = send(url, { method, headers: { ...headers, ...length }, agent: false, signal }, response => {
      let text = ''
      response.setEncoding('utf8')
      response.on('data', (part: string) => (text += part))
      response.on('end', () => resolve({ status: response.statusCode!, text }))
      response.on('error', reject)
    })
    call.on('error', reject)
    call.end(content)
  })
}
