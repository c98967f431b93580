// Streams of one worker, stepped together like in an engine: in a step every stream that is due gets one
// token, with one write per token. Without a gap there is one step per turn of the event loop. A stream whose
// peer does not read waits for it.
import { gzipSync } from 'node:zlib'
import { errorBody, tokenText } from './bodies.mjs'

const TOKEN_CHARACTERS = 5
const END = '0\r\n\r\n'
const DEAD = 'EngineCore encountered an issue. See stack trace (above) for the root cause.'

/** @typedef {ReturnType<typeof import('./bodies.mjs').streamTexts>} Texts */

/** @param {string} text ASCII */
const framed = text => `${text.length.toString(16)}\r\n${text}\r\n`

/** @param {string} text @returns {Buffer} one member of a gzip file, which may have many */
function framedGzip(text) {
  const packed = gzipSync(text)
  return Buffer.concat([Buffer.from(`${packed.length.toString(16)}\r\n`), packed, Buffer.from('\r\n')])
}

export class Stream {
  sent = 0
  blocked = false
  held = false
  #texts
  #before
  #after
  #from
  #strikeAt

  /**
   * @param {import('./exchange.mjs').Exchange} exchange
   * @param {{texts: Texts, total: number, gapMs: number, dueMs: number, usage: string, from: number,
   *   hasIds: boolean}} plan
   * usage: the final usage event if requested, else ''; from: number of its first token
   */
  constructor(exchange, { texts, total, gapMs, dueMs, usage, from, hasIds }) {
    this.exchange = exchange
    this.total = total
    this.gapMs = gapMs
    this.dueMs = dueMs
    this.usage = usage
    this.#texts = texts
    this.#from = from
    const after = texts.after(from)
    this.#before = `${(texts.before.length + TOKEN_CHARACTERS + after.length).toString(16)}\r\n${texts.before}`
    /** Without ids all events are the same but for the text. */
    this.#after = hasIds ? undefined : `${after}\r\n`
    this.#strikeAt = strikePoint(exchange.fault, total)
    this.packed = exchange.fault?.kind === 'gzip' && exchange.acceptsGzip
    exchange.startStream()
  }

  /**
   * Sends the next token, and the end after the last one. True while there is more to send.
   * @param {() => void} wake
   */
  step(wake) {
    if (this.sent === this.#strikeAt) return this.#strike(wake)
    const n = this.sent++
    if (this.packed || n === 0 || n === this.total - 1) this.#sendRare(n)
    else {
      const token = this.#from + n
      this.#write(this.#before + tokenText(token) + (this.#after ?? `${this.#texts.after(token)}\r\n`), wake)
    }
    this.dueMs += this.gapMs
    if (this.sent < this.total) return true
    if (this.sent === this.#strikeAt) return this.#strike(wake)
    this.#end([`${this.usage}data: [DONE]\n\n`], 'completed')
    return false
  }

  /**
   * The first event of a chat comes with its first token; the last token has a finish reason.
   * @param {number} n
   */
  #sendRare(n) {
    const { opening, before, after } = this.#texts
    const token = this.#from + n
    const event = before + tokenText(token) + after(token, n === 0, n === this.total - 1)
    this.#send(n === 0 && opening !== '' ? [opening, event] : [event])
  }

  /** One write. @param {string[]} texts a chunk each @param {string} [end] */
  #send(texts, end = '') {
    const { sink } = this.exchange
    if (this.packed) sink.write(Buffer.concat([...texts.map(framedGzip), Buffer.from(end)]))
    else sink.write(texts.map(framed).join('') + end, 'latin1')
  }

  /** @param {string[]} texts @param {import('./exchange.mjs').Outcome} outcome */
  #end(texts, outcome) {
    this.#send(texts, END)
    this.exchange.sink.flushed(() => this.exchange.end(outcome))
  }

  /** @param {string} bytes @param {() => void} wake */
  #write(bytes, wake) {
    if (this.exchange.sink.write(bytes, 'latin1')) return
    this.blocked = true
    this.exchange.socket.once('drain', () => {
      this.blocked = false
      wake()
    })
  }

  /** Applies the fault. True if the stream continues. @param {() => void} wake */
  #strike(wake) {
    const { exchange } = this
    const fault = /** @type {import('./types.ts').Fault} */ (exchange.fault)
    this.#strikeAt = -1
    if (fault.kind === 'hang') {
      this.held = true
      exchange.hold(fault, () => {
        this.held = false
        wake()
      })
      return true
    }
    if (fault.kind === 'reset') exchange.reset()
    else if (fault.kind === 'truncate') exchange.cut(this.#before)
    else if (fault.kind === 'error_event')
      this.#end([`data: ${errorBody(500, fault.message ?? DEAD)}\n\n`, 'data: [DONE]\n\n'], 'faulted')
    else this.#end([], 'faulted')
    return false
  }
}

/**
 * Number of tokens after which a fault applies; −1 for other faults.
 * @param {import('./types.ts').Fault | undefined} fault
 * @param {number} total
 */
function strikePoint(fault, total) {
  if (fault === undefined) return -1
  const half = total >> 1
  if (fault.kind === 'reset' || fault.kind === 'hang')
    return fault.after === 'headers' ? 0 : Math.min(fault.tokens ?? half, total)
  if (fault.kind === 'truncate' || fault.kind === 'close' || fault.kind === 'error_event')
    return Math.min(fault.tokens ?? half, total)
  return -1
}

export class Engine {
  /** @type {Set<Stream>} */
  #streams = new Set()
  /** @type {NodeJS.Timeout | undefined} */
  #timer
  #stepping = false
  #onTokens

  /** @param {(tokens: number) => void} onTokens told after each step how many tokens it sent */
  constructor(onTokens) {
    this.#onTokens = onTokens
  }

  /** @param {Stream} stream */
  add(stream) {
    this.#streams.add(stream)
    this.wake()
  }

  wake = () => {
    if (this.#stepping) return
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#stepping = true
    setImmediate(this.#step)
  }

  #step = () => {
    this.#stepping = false
    const nowMs = performance.now()
    let nextMs = Infinity
    let tokens = 0
    for (const stream of this.#streams) {
      if (!stream.exchange.open) {
        this.#streams.delete(stream)
        continue
      }
      if (!stream.blocked && !stream.held && stream.dueMs <= nowMs) {
        const before = stream.sent
        const more = stream.step(this.wake)
        tokens += stream.sent - before
        if (!more) {
          this.#streams.delete(stream)
          continue
        }
      }
      if (!stream.blocked && !stream.held && stream.dueMs < nextMs) nextMs = stream.dueMs
    }
    if (tokens > 0) this.#onTokens(tokens)
    if (nextMs <= nowMs) this.wake()
    else if (nextMs < Infinity && !this.#stepping)
      this.#timer = setTimeout(this.wake, Math.ceil(nextMs - nowMs))
  }
}
