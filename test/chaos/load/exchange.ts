/** One request as a client sees it, to its last byte. Each has its own connection, so that none is reused. */
import { request as httpRequest, type IncomingMessage } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { type End, type KnownAnswer, nowMs, type Observation } from '../observation.ts'
import { AnswerReader } from './answer-reader.ts'

export interface ExchangeOptions {
  readonly id: number
  readonly ask: number
  readonly known: Pick<KnownAnswer, 'path' | 'body'>
  readonly gateway: string
  readonly url: string
  readonly stream: boolean
  readonly wantIds: boolean
  readonly wantUsage: boolean
  /** The client's patience. */
  readonly giveUpMs: number
}

export interface Exchange {
  readonly id: number
  readonly gateway: string
  readonly startMs: number
  readonly ended: Promise<Observation>
  /** Whether the first token has arrived, and the stream has not ended. */
  readonly isStreaming: () => boolean
  /** The client closes its connection. */
  readonly leave: () => void
}

export function exchange(options: ExchangeOptions): Exchange {
  const { id, ask, known, gateway, url, stream, wantIds, wantUsage, giveUpMs } = options
  const startMs = nowMs()
  const reader = new AnswerReader(stream, wantIds)
  let head: IncomingMessage | undefined
  let hasLeft = false
  let hasGivenUp = false
  let isOver = false
  const body = JSON.stringify({
    ...known.body,
    stream,
    ...(wantIds && { return_token_ids: true }),
    ...(stream && wantUsage && { stream_options: { include_usage: true } }),
  })
  const send = url.startsWith('https:') ? httpsRequest : httpRequest
  const call = send(`${url}${known.path}`, {
    method: 'POST',
    agent: false,
    headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) },
  })
  const patience = setTimeout(() => {
    hasGivenUp = true
    call.destroy()
  }, giveUpMs)
  const ended = new Promise<Observation>(resolve => {
    const end = (how: End, reason?: string) => {
      if (isOver) return
      isOver = true
      clearTimeout(patience)
      resolve({
        id,
        ask,
        gateway,
        stream,
        startMs,
        endMs: nowMs(),
        end: hasLeft ? 'left' : hasGivenUp ? 'hung' : how,
        reason,
        status: head?.statusCode,
        worker: headerOf(head, 'x-eldr-decode-worker'),
        resumed: Number(headerOf(head, 'x-eldr-resumed') ?? 0),
        ...reader.result(head?.statusCode ?? 0, how === 'ended'),
      })
    }
    const broke = (error: Error & { code?: string }) =>
      end(head === undefined ? 'refused' : 'cut', error.code ?? error.message)
    call.on('error', broke)
    call.on('response', response => {
      head = response
      response.on('data', (chunk: Buffer) => reader.read(chunk, nowMs()))
      response.on('error', broke)
      response.on('end', () => end('ended'))
      response.on('close', () => end('cut', 'closed'))
    })
    call.on('close', () => end(head === undefined ? 'refused' : 'cut', 'closed'))
  })
  call.end(body)
  return {
    id,
    gateway,
    startMs,
    ended,
    isStreaming: () => !isOver && stream && reader.hasBegun,
    leave() {
      hasLeft = true
      call.destroy()
    },
  }
}

function headerOf(head: IncomingMessage | undefined, name: string): string | undefined {
  const value = head?.headers[name]
  return typeof value === 'string' ? value : undefined
}
