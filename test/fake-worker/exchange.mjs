// One request and its response. An exchange ends once: completed, rejected, faulted or aborted by the peer.
import { setTimeout } from 'node:timers' // real time, even if a test fakes the clock
import { gzipSync } from 'node:zlib'
import { errorBody } from './bodies.mjs'
import { dribble, plainSink, reset } from './faults.mjs'

/** @type {Readonly<Record<number, string>>} */
const REASONS = {
  200: 'OK',
  400: 'Bad Request',
  404: 'Not Found',
  405: 'Method Not Allowed',
  429: 'Too Many Requests',
  500: 'Internal Server Error',
  502: 'Bad Gateway',
  503: 'Service Unavailable',
}
const READ_MS = 5
const GARBAGE = '\u0000\u0016\u0003\u0001 this is not HTTP\r\n\r\n'

/** @typedef {'completed' | 'rejected' | 'faulted' | 'aborted'} Outcome */

export class Exchange {
  /**
   * A fault within the response; faults that replace the response are handled before.
   * @type {import('./types.ts').Fault | undefined}
   */
  fault
  open = true
  /** The connection closes with this exchange: nothing more is read from it. */
  last = false
  /** Responds even if the peer has closed its side of the connection. */
  unaware = false
  #onEnd
  #onHold

  /**
   * @param {import('node:net').Socket} socket
   * @param {import('./received-request.mjs').ReceivedRequest} request
   * @param {(outcome: Outcome) => void} onEnd
   * @param {() => void} onHold called when a hang starts
   */
  constructor(socket, request, onEnd, onHold) {
    this.socket = socket
    this.request = request
    this.sink = plainSink(socket)
    this.#onEnd = onEnd
    this.#onHold = onHold
  }

  /** @param {Outcome} outcome */
  end(outcome) {
    if (!this.open) return
    this.open = false
    this.#onEnd(outcome)
  }

  /**
   * Applies a fault: it replaces the response, or takes effect later in the response.
   * @param {import('./types.ts').Fault} fault
   * @param {() => void} goOn
   */
  meet(fault, goOn) {
    if (fault.kind === 'reset' && fault.after === 'request') return this.reset()
    if (fault.kind === 'hang' && fault.after === 'request') return this.hold(fault, goOn)
    if (fault.kind === 'garbage') return this.cut(fault.bytes ?? GARBAGE)
    if (fault.kind === 'status') {
      const body = errorBody(fault.status, fault.message ?? 'injected fault')
      return this.send(fault.status, body, { outcome: 'faulted', headers: fault.headers })
    }
    if (fault.kind === 'answer' && fault.body !== undefined) {
      return this.send(200, fault.body, {
        outcome: 'faulted',
        contentType: fault.contentType ?? 'application/json',
      })
    }
    this.fault = fault
    if (fault.kind === 'slow') this.sink = dribble(this.socket, fault)
    return goOn()
  }

  /**
   * RST, after the peer had time to read what was written: libuv reads bytes and RST together as an orderly
   * end.
   */
  reset() {
    this.last = true
    this.end('faulted')
    // After the wait one more turn of the event loop: a peer in this process then reads before the RST, even
    // if the process was held up for longer than the wait.
    this.socket.write('', () => setTimeout(() => setImmediate(() => reset(this.socket)), READ_MS))
  }

  /** Sends the last bytes and closes the connection. @param {string} bytes */
  cut(bytes) {
    this.last = true
    this.end('faulted')
    this.socket.end(bytes, 'latin1')
  }

  /**
   * Sends nothing until the promise resolves.
   * @param {{until?: Promise<unknown> | undefined, unaware?: boolean | undefined}} fault
   * @param {() => void} goOn
   */
  hold({ until, unaware = false }, goOn) {
    this.fault = undefined
    this.unaware = unaware
    this.#onHold()
    void until?.then(() => {
      if (this.open) goOn()
    })
  }

  /**
   * A whole response with its content-length.
   * @param {number} status
   * @param {string} text
   * @param {{contentType?: string, headers?: Readonly<Record<string, string>> | undefined,
   *   outcome?: Outcome}} [how]
   * @returns {void}
   */
  send(
    status,
    text,
    {
      contentType = 'application/json',
      headers = {},
      outcome = status < 400 ? 'completed' : 'rejected',
    } = {},
  ) {
    if (this.fault !== undefined) return this.#sendWithFault(status, text, contentType)
    this.sink.write(`${headOf(status, contentType, Buffer.byteLength(text), headers)}${text}`)
    return this.end(outcome)
  }

  /** @param {number} status @param {string} text @param {string} contentType @returns {void} */
  #sendWithFault(status, text, contentType) {
    const fault = /** @type {import('./types.ts').Fault} */ (this.fault)
    this.fault = undefined
    if (fault.kind === 'error_event')
      return this.send(500, errorBody(500, fault.message ?? 'EngineCore died'), { outcome: 'faulted' })
    const packed = fault.kind === 'gzip' && this.acceptsGzip ? gzipSync(text) : undefined
    const body = packed ?? Buffer.from(text)
    const type = fault.kind === 'answer' ? fault.contentType : undefined
    const head = headOf(status, type ?? contentType, body.length, packed && { 'content-encoding': 'gzip' })
    const finish = () => this.sink.flushed(() => this.end('completed'))
    if (fault.kind === 'truncate' || fault.kind === 'close')
      return this.cut(head + body.toString('latin1', 0, body.length >> 1))
    this.sink.write(head)
    if (fault.kind === 'reset') return this.reset()
    const rest = () => {
      this.sink.write(body)
      finish()
    }
    return fault.kind === 'hang' ? this.hold(fault, rest) : rest()
  }

  get acceptsGzip() {
    return /\bgzip\b/.test(this.request.headers['accept-encoding'] ?? '')
  }

  /** The head of a stream. */
  startStream() {
    const type = this.fault?.kind === 'answer' ? this.fault.contentType : undefined
    const packed = this.fault?.kind === 'gzip' && this.acceptsGzip
    const headers = { 'transfer-encoding': 'chunked', ...(packed ? { 'content-encoding': 'gzip' } : {}) }
    this.sink.write(headOf(200, type ?? 'text/event-stream; charset=utf-8', undefined, headers), 'latin1')
  }
}

/**
 * @param {number} status
 * @param {string} contentType
 * @param {number | undefined} length
 * @param {Readonly<Record<string, string>>} [headers]
 */
function headOf(status, contentType, length, headers = {}) {
  let head = `HTTP/1.1 ${status} ${REASONS[status] ?? 'Status'}\r\ndate: ${date()}\r\nserver: uvicorn\r\ncontent-type: ${contentType}\r\n`
  if (length !== undefined) head += `content-length: ${length}\r\n`
  for (const name in headers) head += `${name}: ${headers[name]}\r\n`
  return `${head}\r\n`
}

let dateText = ''
let dateSecond = 0

/** Cached for a second: formatting a date costs more than the rest of a head. */
function date() {
  const second = Math.floor(Date.now() / 1000)
  if (second !== dateSecond) {
    dateSecond = second
    dateText = new Date().toUTCString()
  }
  return dateText
}
