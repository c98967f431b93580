/**
 * The answer of one client as a stream of events. Chunks that came framed go on as they came, and all that was read at once goes in one
 * write: with Node's own framing a token is four writes joined, which costs as much again as sending it. Node's response still does
 * the head and the end, so that it knows the state of its connection; HTTP/1.0 and answers that wait for another's end get all of it.
 */
import type { OutgoingHttpHeaders } from 'node:http'
import type { Socket } from 'node:net'
import type { Exchange } from './exchange.ts'

export class ClientStream {
  readonly #exchange: Exchange
  /** Undefined: chunks go through the response. */
  #socket: Socket | undefined
  #frames: Buffer[] = []
  #bytes = 0
  #headSent = false

  constructor(exchange: Exchange) {
    this.#exchange = exchange
  }

  /** Nothing is sent before there is something to send with it. */
  begin(headers: OutgoingHttpHeaders): void {
    const { response, request, id, headers: extra } = this.#exchange
    const direct = response.socket !== null && request.httpVersion === '1.1' && request.method !== 'HEAD'
    // Proxies in front of the gateway must not collect a stream before they pass it on.
    const streaming = { 'cache-control': 'no-cache', 'x-accel-buffering': 'no' }
    const coding = direct && { 'transfer-encoding': 'chunked' }
    response.writeHead(200, { ...extra, 'x-request-id': id, ...streaming, ...headers, ...coding })
    if (direct) this.#socket = response.socket
  }

  write(chunk: Buffer, frame?: Buffer): void {
    if (this.#socket === undefined) this.#exchange.response.write(chunk)
    else {
      const bytes = frame ?? framed(chunk)
      this.#frames.push(bytes)
      this.#bytes += bytes.length
    }
  }

  /** Sends what was written. False: write no more until `drained` has called. */
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
    this.#exchange.whenTaken(listener, this.#socket)
  }

  /** `last` is one more event. */
  end(last?: string): void {
    if (last !== undefined) this.write(Buffer.from(last))
    this.#socket?.cork() // the end of the body goes with its last bytes: Node uncorks when a response ends
    this.flush()
    this.#exchange.end()
  }
}

function framed(chunk: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`${chunk.length.toString(16)}\r\n`), chunk, CRLF])
}

const CRLF = Buffer.from('\r\n')

/** Frames that were read at once lie side by side, and need no copy. */
export function joined(frames: readonly Buffer[], bytes: number): Buffer {
  const first = frames[0]!
  if (frames.length === 1) return first
  // Each of them is looked at: between two that were made here there may be just as many bytes of somebody else's.
  for (let at = 1; at < frames.length; at++)
    if (!isBehind(frames[at - 1]!, frames[at]!)) return Buffer.concat(frames, bytes)
  return Buffer.from(first.buffer, first.byteOffset, bytes)
}

function isBehind(one: Buffer, next: Buffer): boolean {
  return one.buffer === next.buffer && one.byteOffset + one.length === next.byteOffset
}
