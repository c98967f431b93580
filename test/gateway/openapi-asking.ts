/** Requests to a running gateway, with responses checked against its document. */
import { join } from 'node:path'
import { writeArtifact } from '../../src/fit/artifact-write.ts'
import { fitFile } from '../data.ts'
import { writeSyntheticTrace } from '../synthetic-traces.ts'
import { SHAPE } from './cluster.ts'
import { type Answered, type Asked, type Conformance } from './openapi-support.ts'
import { RawClient } from './raw-socket.ts'

export const TOKEN = 'sesame'
export const KEY = 'client'

const keyFor = (path: string) => (path.startsWith('/eldr') ? TOKEN : KEY)
export const filled = (path: string) => path.replace('{id}', 'x').replace('{path}', 'responses')

/** The head of a valid request with additional headers. */
export function head({ method, path }: Asked, more = '', host = 'Host: 127.0.0.1\r\n'): string {
  return `${method} ${filled(path)} HTTP/1.1\r\n${host}Authorization: Bearer ${keyFor(path)}\r\n${more}\r\n`
}

export async function raw(bytes: string, url: string): Promise<Answered> {
  const client = new RawClient(url).send(bytes)
  const answer = await client.answer()
  client.leave()
  return answer
}

export interface Wish {
  /** The actual path, if the document's has a parameter. */
  readonly as?: string
  readonly body?: unknown
  readonly headers?: Record<string, string>
}

export class Asking {
  readonly contract: Conformance
  /** URL of the gateway under test. */
  url: string

  constructor(contract: Conformance, url: string) {
    this.contract = contract
    this.url = url
  }

  /** Sends a request. Fails if the status differs, or if the response does not match the document. */
  async ask(
    method: string,
    path: string,
    status: number,
    { as = filled(path), body, headers = {} }: Wish = {},
  ): Promise<Answered> {
    const response = await fetch(`${this.url}${as}`, {
      method,
      redirect: 'manual',
      headers: {
        authorization: `Bearer ${keyFor(path)}`,
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...headers,
      },
      body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body),
    })
    const answer = {
      status: response.status,
      headers: Object.fromEntries(response.headers),
      body: await response.text(),
    }
    if (answer.status !== status)
      throw new Error(`${method} ${as}: expected ${status}, found ${answer.status} ${answer.body}`)
    this.contract.check({ method, path }, answer)
    return answer
  }

  /** Sends bytes for each operation in turn and checks the responses. Returns the statuses. */
  async each(asked: readonly Asked[], bytes: (asked: Asked) => string): Promise<number[]> {
    const statuses = new Set<number>()
    for (const one of asked) {
      const answer = await raw(bytes(one), this.url)
      this.contract.check(one, answer)
      statuses.add(answer.status)
    }
    return [...statuses]
  }
}

/** The part received of an endless stream. It is chunked, and a chunk holds whole events. */
export function soFar({ text }: RawClient): Answered {
  const [top, ...parts] = text.split('\r\n\r\n')
  const header = (name: string) => new RegExp(`^${name}: (.*)$`, 'im').exec(top!)![1]!.trim()
  const body = parts
    .join('\r\n\r\n')
    .replaceAll(/(^|\r\n)[\da-f]+\r\n/g, '')
    .replaceAll('\r\n', '')
  return {
    status: 200,
    headers: { 'content-type': header('content-type'), 'x-request-id': header('x-request-id') },
    body,
  }
}

/** Body of a generation request for its path. */
export function wishFor({ method, path }: Asked): Wish {
  if (method !== 'POST') return {}
  return {
    body: path.includes('chat')
      ? { messages: [{ role: 'user', content: 'a' }], max_tokens: 3 }
      : { prompt: 'a', max_tokens: 3 },
  }
}

export async function artifactWithDomains(folder: string): Promise<string> {
  const [trace, path] = [join(folder, 'domains.trace'), join(folder, 'domains.artifact')]
  await writeSyntheticTrace(trace, { ...SHAPE, domains: 2, preference: 8 }, 24, 1)
  await writeArtifact(
    path,
    (await fitFile(trace, { workers: 1, layers: 'all', transform: 'count' })).artifact,
  )
  return path
}
