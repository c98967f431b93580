/**
 * One keep-alive connection to a worker, with one request at a time. It uses sockets and not an HTTP client,
 * because every token passes through it: all connections read into one shared buffer, bytes are copied out
 * once, and the frames of a stream are forwarded unchanged. bench/gateway measures the difference.
 */
import { connect as connectPlain, type OnReadOpts, type Socket, type TcpSocketConnectOpts } from 'node:net'
import { connect as connectTls, type ConnectionOptions } from 'node:tls'
import type { UpstreamCall } from './call.ts'
import { UpstreamFailure } from './failure.ts'
import type { ReplyHead } from './reply-head.ts'
import { ReplyReader, type ReplyTarget } from './reply-reader.ts'

export interface ConnectionPlan {
  readonly host: string
  readonly port: number
  readonly connectMs: number
  /** Undefined: no TLS. */
  readonly tls: ConnectionOptions | undefined
  /** The connection has no request and can be reused. */
  onIdle(connection: WorkerConnection): void
  /** An idle connection was closed before the worker responded: the request must be sent on another one. */
  onStale(call: UpstreamCall, head: string, body: Buffer | undefined): void
  onClosed(connection: WorkerConnection): void
}

const READ_BYTES = 65_536
const SHARED = Buffer.allocUnsafeSlow(READ_BYTES)
/** Windows fills the buffer before it reports the read, so each connection needs its own there. */
const readBuffer = () => (process.platform === 'win32' ? Buffer.allocUnsafeSlow(READ_BYTES) : SHARED)
/**
 * If a connection was idle for longer than this, its closing is a keep-alive timeout and not a failed
 * request.
 */
const STALE_MS = 500
/** A smaller body is copied behind its head: one write costs less than two. */
const MAX_COPIED_BODY_BYTES = 16_384

export class WorkerConnection implements ReplyTarget {
  readonly #plan: ConnectionPlan
  readonly #socket: Socket
  readonly #reader = new ReplyReader()
  readonly #connectTimer: NodeJS.Timeout
  #connected = false
  #call: UpstreamCall | undefined
  /** The request, until the worker's first byte. */
  #request: { readonly head: string; readonly body: Buffer | undefined } | undefined
  #keepAlive = false
  #answered = false
  #idleSinceMs = Infinity
  /** The connection was idle for so long before this request that the worker may have been closing it. */
  #stale = false
  #paused = false

  constructor(plan: ConnectionPlan) {
    this.#plan = plan
    const { host, port, tls, connectMs } = plan
    const onread: OnReadOpts = {
      buffer: readBuffer(),
      callback: (count, buffer) => this.#read(count, buffer),
    }
    const options: TcpSocketConnectOpts = { host, port, noDelay: true, keepAlive: true, onread }
    this.#socket = tls === undefined ? connectPlain(options) : connectTls({ ...options, ...tls })
    this.#connectTimer = setTimeout(
      () => this.#fail('connect', `no connection within ${connectMs} ms`),
      connectMs,
    )
    this.#socket
      .once(tls === undefined ? 'connect' : 'secureConnect', () => this.#connect())
      .on('error', cause => this.#fail(this.#connected ? 'reset' : 'connect', cause.message, cause))
      .on('end', () => this.#ended())
      .on('close', () => {
        this.#fail(this.#connected ? 'reset' : 'connect', 'connection closed')
        plan.onClosed(this)
      })
  }

  /** Totals over the connection's lifetime. */
  get bytes(): { readonly received: number; readonly sent: number } {
    return { received: this.#socket.bytesRead, sent: this.#socket.bytesWritten }
  }

  /** Sends a request now, or as soon as the connection is established. */
  run(call: UpstreamCall, head: string, body: Buffer | undefined): void {
    this.#call = call
    this.#answered = false
    this.#reader.reset()
    this.#request = { head, body }
    this.#stale = performance.now() - this.#idleSinceMs > STALE_MS
    call.assign(this)
    if (this.#connected) this.#send(head, body)
  }

  /** Closes the connection and fails its request. */
  close(): void {
    this.#fail('reset', 'connection closed')
  }

  /** Closes the connection without notifying its call. */
  drop(): void {
    this.#call = undefined
    this.#reader.stop()
    clearTimeout(this.#connectTimer)
    this.#socket.destroy()
  }

  /**
   * Closes the sending side only, which is how a worker learns that the client left. False if it is closed
   * already.
   */
  hangUp(): boolean {
    if (!this.#socket.writable) return false
    // Must not be sent again on another connection.
    this.#request = undefined
    this.#socket.end()
    return true
  }

  pause(): void {
    this.#paused = true
    this.#socket.pause()
  }

  resume(): void {
    this.#paused = false
    this.#socket.resume()
  }

  onHead({ status, headers, keepAlive }: ReplyHead): void {
    this.#keepAlive = keepAlive
    this.#call?.start(status, headers)
  }

  onBody(chunk: Buffer, frame: Buffer | undefined): void {
    this.#call?.data(chunk, frame)
  }

  onBodyEnd(): void {
    this.#answered = true
  }

  #connect(): void {
    clearTimeout(this.#connectTimer)
    this.#connected = true
    if (this.#request !== undefined) this.#send(this.#request.head, this.#request.body)
  }

  #send(head: string, body: Buffer | undefined): void {
    if (this.#call === undefined) return
    this.#call.sent = true
    const socket = this.#socket
    if (body === undefined) socket.write(head, 'latin1')
    else if (body.length <= MAX_COPIED_BODY_BYTES) {
      const bytes = Buffer.allocUnsafe(head.length + body.length)
      bytes.write(head, 'latin1')
      bytes.set(body, head.length)
      socket.write(bytes)
    } else {
      socket.cork()
      socket.write(head, 'latin1')
      socket.write(body)
      socket.uncork()
    }
  }

  /** Returns true: keep reading. */
  #read(count: number, shared: Uint8Array): boolean {
    const bytes = Buffer.allocUnsafe(count)
    bytes.set(shared.length === count ? shared : shared.subarray(0, count))
    const call = this.#call
    this.#request = undefined
    const isValid = this.#reader.push(bytes, this)
    // Bytes without a request: the connection is unusable.
    if (this.#call === undefined) this.#socket.destroy()
    else if (this.#answered) this.#finish(isValid)
    else if (!isValid) this.#fail('garbage', this.#reader.problem)
    else call!.paused()
    return true
  }

  #finish(isReusable: boolean): void {
    const call = this.#call!
    this.#call = undefined
    this.#idleSinceMs = performance.now()
    // TLS delivers what it has already read even while paused, which may include the end.
    if (this.#paused) this.resume()
    // If the worker responded before it read the whole request, the rest of it would precede the next
    // request.
    if (isReusable && this.#keepAlive && this.#socket.writable && this.#socket.writableLength === 0)
      this.#plan.onIdle(this)
    else this.drop()
    call.end()
  }

  #ended(): void {
    if (this.#call !== undefined && this.#reader.endsWithConnection) this.#finish(false)
    else this.#fail('reset', 'the worker closed the connection')
  }

  #fail(kind: 'connect' | 'reset' | 'garbage', message: string, cause?: unknown): void {
    const [call, request] = [this.#call, this.#request]
    this.drop()
    if (call !== undefined && kind === 'reset' && this.#stale && request !== undefined)
      this.#plan.onStale(call, request.head, request.body)
    else call?.fail(new UpstreamFailure(kind, message, cause))
  }
}
