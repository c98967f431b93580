/**
 * A response as an event stream. Chunks are passed on with the worker's chunked framing, and everything read
 * at once is sent in one write: Node's own framing joins four writes per token, which doubles the cost of
 * sending it. Node's response still writes the head and the end, so that it knows the state of the
 * connection. HTTP/1.0 and pipelined responses go through Node's response entirely.
 */
import type { OutgoingHttpHeaders } from 'node:http'
import type { Socket } from 'node:net'
import type { Exchange } from './exchange.ts'

export class ClientStream {
  readonly #exchange: Exchange
  /** Undefined: chunks go through Node's response. */
  #socket: Socket | undefined
  #frames: Buffer[] = []
  #bytes = 0
  #headSent = false

  constructor(exchange: Exchange) {
    this.#exchange = exchange
  }

  /** Prepares the head, which is sent with the first bytes. */
  begin(headers: OutgoingHttpHeaders): void {
    const { response, request, id, headers: extra } = this.#exchange
    const direct = response.socket !== null && request.httpVersion === '1.1' && request.method !== 'HEAD'
    // Proxies in front of the gateway must not buffer the stream.
    const own = { 'x-request-id': id, 'cache-control': 'no-cache', 'x-accel-buffering': 'no' }
    const head: OutgoingHttpHeaders = { ...extra, ...own, ...headers }
    if (direct) {
      head['transfer-encoding'] = 'chunked'
      this.#socket = response.socket
    }
    response.writeHead(200, head)
  }

  write(chunk: Buffer, frame?: Buffer): void {
    if (this.#socket === undefined) this.#exchange.response.write(chunk)
    else {
      const bytes = frame ?? framed(chunk)
      this.#frames.push(bytes)
      this.#bytes += bytes.length
    }
  }

  /** Sends what was written. False: write no more until `drained` calls back. */
  flush(): boolean {
    const socket = this.#socket
    if (socket === undefined) return !this.#exchange.response.writableNeedDrain
    if (this.#bytes > 0) this.#send(socket)
    return !socket.writableNeedDrain
  }

  #send(socket: Socket): void {
    const bytes = joined(this.#frames, this.#bytes)
    this.#frames = []
    this.#bytes = 0
    if (this.#headSent) return void socket.write(bytes)
    this.#headSent = true
    socket.cork()
    this.#exchange.response.flushHeaders()
    socket.write(bytes)
    return socket.uncork()
  }

  drained(listener: () => void): void {
    this.#exchange.whenDrained(listener, this.#socket)
  }

  /** `last`: a final event. */
  end(last?: string): void {
    if (last !== undefined) this.write(Buffer.from(last))
    this.#socket?.cork() // sends the end of the body with its last bytes: Node uncorks when a response ends
    this.flush()
    this.#exchange.end()
  }
}

function framed(chunk: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`${chunk.length.toString(16)}\r\n`), chunk, CRLF])
}

const CRLF = Buffer.from('\r\n')

/** Frames from one read are adjacent in memory and need no copy. */
export function joined(frames: readonly Buffer[], bytes: number): Buffer {
  const first = frames[0]!
  if (frames.length === 1) return first
  // Each one is checked: between two frames made here there may be exactly as many bytes of another buffer.
  for (let at = 1; at < frames.length; at++)
    if (!isBehind(frames[at - 1]!, frames[at]!)) return Buffer.concat(frames, bytes)
  return Buffer.from(first.buffer, first.byteOffset, bytes)
}

function isBehind(one: Buffer, next: Buffer): boolean {
  return one.buffer === next.buffer && one.byteOffset + one.length === next.byteOffset
}
