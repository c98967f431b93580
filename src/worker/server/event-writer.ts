/**
 * A stream to one client at that client’s speed. While the client keeps up there is one write per token;
 * otherwise pending tokens are merged and sent as one event when the client reads again. A stalled client
 * therefore holds at most the text of its own response and delays no other client. A client that stalls too
 * long is disconnected. Chunks are framed here and written to the socket at once: Node’s response makes four
 * writes of each, which costs more than everything else done per token.
 */
import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

export interface EventWriterOptions<T> {
  readonly response: ServerResponse
  /** How long a client may read nothing. */
  readonly stallMs: number
  readonly onStalled: () => void
  /** Merges two pieces into one. */
  readonly merge: (first: T, second: T) => T
  readonly print: (piece: T) => string
}

export class EventWriter<T> {
  readonly #options: EventWriterOptions<T>
  /**
   * Undefined if the response must write by itself: for HTTP/1.0, and for a pipelined response that waits for
   * the previous one.
   */
  readonly #socket: Socket | undefined
  #full = false
  #kept: T | undefined
  #last: string | undefined
  #timer: NodeJS.Timeout | undefined

  /** The head of the response has been sent. */
  constructor(options: EventWriterOptions<T>) {
    this.#options = options
    const { response } = options
    const direct = response.socket !== null && response.chunkedEncoding
    this.#socket = direct ? response.socket : undefined
    const drained = () => this.#drained()
    const by = this.#socket ?? response
    by.on('drain', drained)
    // A pipelined response is not stalled while it waits for the previous one.
    if (response.socket === null) response.once('socket', () => this.#full && this.#watch())
    response.once('close', () => {
      clearTimeout(this.#timer)
      by.off('drain', drained)
    })
  }

  write(piece: T): void {
    if (this.#full) this.#kept = this.#kept === undefined ? piece : this.#options.merge(this.#kept, piece)
    else this.#send(this.#options.print(piece))
  }

  /** Sent after everything written before. */
  end(text: string): void {
    this.#last = text
    if (!this.#full) this.#finish()
  }

  #send(text: string): void {
    const { response } = this.#options
    if (response.destroyed || text === '') return
    const socket = this.#socket
    const flows =
      socket === undefined
        ? response.write(text)
        : socket.write(`${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`)
    if (flows) return
    this.#full = true
    if (response.socket !== null) this.#watch()
  }

  #watch(): void {
    const { stallMs, onStalled } = this.#options
    clearTimeout(this.#timer)
    this.#timer = setTimeout(onStalled, stallMs).unref()
  }

  #drained(): void {
    this.#full = false
    clearTimeout(this.#timer)
    const kept = this.#kept
    this.#kept = undefined
    if (kept !== undefined) this.#send(this.#options.print(kept))
    if (this.#last !== undefined && !this.#full) this.#finish()
  }

  #finish(): void {
    const last = this.#last!
    this.#last = undefined
    this.#options.response.end(last)
  }
}
