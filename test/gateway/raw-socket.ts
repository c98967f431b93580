/** A raw HTTP client: it sends what no HTTP library would, and reads responses strictly. */
import { connect, type Socket } from 'node:net'

export interface RawAnswer {
  readonly status: number
  /** By lower-case name; repeated headers are joined by a comma. */
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

export class RawClient {
  readonly socket: Socket
  /** All bytes received, one character per byte. */
  text = ''
  ended = false
  #waiting: (() => void)[] = []

  constructor(url: string) {
    const { hostname, port } = new URL(url)
    this.socket = connect({ host: hostname, port: Number(port), noDelay: true, allowHalfOpen: true })
    this.socket.setEncoding('latin1')
    this.socket.on('error', () => {})
    this.socket.on('data', (part: string) => {
      this.text += part
      this.#changed()
    })
    for (const event of ['end', 'close']) {
      this.socket.on(event, () => {
        this.ended = true
        this.#changed()
      })
    }
  }

  #changed(): void {
    for (const resolve of this.#waiting.splice(0)) resolve()
  }

  #change(): Promise<void> {
    return new Promise(resolve => this.#waiting.push(resolve))
  }

  send(bytes: string): this {
    this.socket.write(bytes, 'latin1')
    return this
  }

  /** Waits until the received bytes match. Fails if the connection ends before. */
  async until(holds: (text: string) => boolean): Promise<void> {
    while (!holds(this.text)) {
      if (this.ended) throw new Error(`the connection ended with ${JSON.stringify(this.text.slice(-300))}`)
      await this.#change()
    }
  }

  /** The first complete responses. `methods`: of their requests, if one is a HEAD. */
  async answers(count: number, methods: readonly string[] = []): Promise<RawAnswer[]> {
    await this.until(text => answersIn(text, methods).length >= count || this.ended)
    return answersIn(this.text, methods)
  }

  async answer(method?: string): Promise<RawAnswer> {
    const [answer] = await this.answers(1, method === undefined ? [] : [method])
    return answer!
  }

  /** All responses, once the gateway has closed the connection. */
  async toEnd(): Promise<RawAnswer[]> {
    while (!this.ended) await this.#change()
    this.leave()
    return answersIn(this.text)
  }

  leave(): void {
    this.socket.destroy()
  }
}

/** Complete responses in order, including 1xx; throws at anything else. */
export function answersIn(text: string, methods: readonly string[] = []): RawAnswer[] {
  const answers: RawAnswer[] = []
  let rest = text
  for (let at = 0; rest !== ''; at++) {
    const end = rest.indexOf('\r\n\r\n')
    if (end < 0) break
    const [line, ...lines] = rest.slice(0, end).split('\r\n')
    const status = Number(/^HTTP\/1\.1 (\d{3})( |$)/.exec(line!)?.[1])
    if (Number.isNaN(status)) throw new Error(`no status line: ${JSON.stringify(line)}`)
    const headers = headersIn(lines)
    const read =
      status < 200 || methods[at] === 'HEAD'
        ? { body: '', rest: rest.slice(end + 4) }
        : bodyIn(rest.slice(end + 4), headers)
    if (read === undefined) break
    answers.push({ status, headers, body: read.body })
    rest = read.rest
  }
  return answers
}

function headersIn(lines: readonly string[]): Record<string, string> {
  const headers: Record<string, string> = {}
  for (const line of lines) {
    const [, name, value] = /^([!#$%&'*+.^`|~\w-]+): ?(.*)$/.exec(line) ?? []
    if (name === undefined) throw new Error(`no header: ${JSON.stringify(line)}`)
    const key = name.toLowerCase()
    headers[key] = key in headers ? `${headers[key]}, ${value}` : value!
  }
  return headers
}

function bodyIn(
  rest: string,
  headers: Readonly<Record<string, string>>,
): { body: string; rest: string } | undefined {
  if (headers['transfer-encoding'] !== undefined && headers['content-length'] !== undefined)
    throw new Error('two lengths')
  if (headers['transfer-encoding'] === 'chunked') return chunksIn(rest)
  const length = headers['content-length']
  if (length === undefined) return { body: rest, rest: '' } // to the end of the connection
  return rest.length < Number(length)
    ? undefined
    : { body: rest.slice(0, Number(length)), rest: rest.slice(Number(length)) }
}

function chunksIn(text: string): { body: string; rest: string } | undefined {
  let body = ''
  for (let rest = text; ;) {
    const [line, digits] = /^([\da-f]+)\r\n/i.exec(rest) ?? []
    if (line === undefined) return undefined
    const size = Number.parseInt(digits!, 16)
    const end = line.length + size
    if (rest.length < end + 2) return undefined
    body += rest.slice(line.length, end)
    rest = rest.slice(end + 2)
    if (size === 0) return { body, rest }
  }
}

/** A request with a content-length. */
export function postBytes(body: string, headers = '', path = '/v1/completions', version = '1.1'): string {
  return `POST ${path} HTTP/${version}\r\nHost: gateway\r\n${headers}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
}
