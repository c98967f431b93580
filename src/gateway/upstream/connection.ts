/**
 * One connection to a worker, kept alive, one request at a time. It is written against sockets, not against an HTTP client, because it is
 * what every token goes through: bytes are read into one buffer that all connections share and copied out once, and the frames of a
 * stream are handed over as they came. bench/gateway shows what that gives.
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
  /** Nothing is under way on it, and it can be used again. */
  onIdle(connection: WorkerConnection): void
  /** It was closed before the worker said anything, as happens to one that was idle: the request should have another. */
  onStale(call: UpstreamCall, head: string, body: Buffer | undefined): void
  onClosed(connection: WorkerConnection): void
}

const READ_BYTES = 65_536
const SHARED = Buffer.allocUnsafeSlow(READ_BYTES)
/** Where the system fills a buffer before it says so, as Windows does, each connection needs its own. */
const readBuffer = () => (process.platform === 'win32' ? Buffer.allocUnsafeSlow(READ_BYTES) : SHARED)
/** A worker that closes a connection which has been idle for longer has had enough of it, not of the request. */
const OLD_MS = 500
/** A smaller body is copied behind its head and goes in one piece, which costs less than a write of two. */
const MAX_COPIED_BODY_BYTES = 16_384

export class WorkerConnection implements ReplyTarget {
  readonly #plan: ConnectionPlan
  readonly #socket: Socket
  readonly #reader = new ReplyReader()
  readonly #connectTimer: NodeJS.Timeout
  #connected = false
  #call: UpstreamCall | undefined
  /** What was asked, until the worker says something. */
  #asked: { readonly head: string; readonly body: Buffer | undefined } | undefined
  #keepAlive = false
  #answered = false
  #idleSinceMs = Infinity
  /** It was idle for so long before this request that the worker may have been closing it. */
  #old = false
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
        this.#fail(this.#connected ? 'reset' : 'connect', 'the connection was closed')
        plan.onClosed(this)
      })
  }

  /** Of its whole life. Node counts them. */
  get bytes(): { readonly received: number; readonly sent: number } {
    return { received: this.#socket.bytesRead, sent: this.#socket.bytesWritten }
  }

  /** Sends a request now, or as soon as it is connected. */
  run(call: UpstreamCall, head: string, body: Buffer | undefined): void {
    this.#call = call
    this.#answered = false
    this.#reader.reset()
    this.#asked = { head, body }
    this.#old = performance.now() - this.#idleSinceMs > OLD_MS
    call.goesBy(this)
    if (this.#connected) this.#send(head, body)
  }

  /** Closes it, and fails the call that is under way. */
  close(): void {
    this.#fail('reset', 'the connection was closed')
  }

  /** Closes it; the call, if any, is not told. */
  drop(): void {
    this.#call = undefined
    this.#reader.stop()
    clearTimeout(this.#connectTimer)
    this.#socket.destroy()
  }

  /** Closes the sending side only, which is how a worker learns that the client left. False if it is closed already. */
  hangUp(): boolean {
    if (!this.#socket.writable) return false
    // Must not be sent again on another connection.
    this.#asked = undefined
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
    if (this.#asked !== undefined) this.#send(this.#asked.head, this.#asked.body)
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

  /** True: go on reading. */
  #read(count: number, shared: Uint8Array): boolean {
    const bytes = Buffer.allocUnsafe(count)
    bytes.set(shared.length === count ? shared : shared.subarray(0, count))
    const call = this.#call
    this.#asked = undefined
    const wrong = this.#reader.push(bytes, this)
    // Nobody waits for what a worker says without being asked.
    if (this.#call === undefined) this.#socket.destroy()
    else if (this.#answered) this.#finish(wrong === undefined)
    else if (wrong !== undefined) this.#fail('garbage', wrong)
    else call!.paused()
    return true
  }

  #finish(sound: boolean): void {
    const call = this.#call!
    this.#call = undefined
    this.#idleSinceMs = performance.now()
    if (this.#paused) this.resume() // TLS hands over what it has read although it is paused, and that may be the end
    // What the worker did not wait for it does not want: then this is no beginning of the next request.
    if (sound && this.#keepAlive && this.#socket.writable && this.#socket.writableLength === 0)
      this.#plan.onIdle(this)
    else this.drop()
    call.end()
  }

  #ended(): void {
    if (this.#call !== undefined && this.#reader.endsWithConnection) this.#finish(false)
    else this.#fail('reset', 'the worker closed the connection')
  }

  #fail(kind: 'connect' | 'reset' | 'garbage', words: string, cause?: unknown): void {
    const [call, asked] = [this.#call, this.#asked]
    this.drop()
    if (call !== undefined && kind === 'reset' && this.#old && asked !== undefined)
      this.#plan.onStale(call, asked.head, asked.body)
    else call?.fail(new UpstreamFailure(kind, words, cause))
  }
}
