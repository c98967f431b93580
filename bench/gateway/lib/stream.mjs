// One stream of the load client: sends a request, counts its events, and repeats.
import { connect } from 'node:net'
import { decodeBytes, prefillBytes } from './pd.mjs'
import { chatBody, requestBytes } from './prompts.mjs'
import { Reply } from './reply.mjs'

const NEWLINE = 10
/** Events of a chat beside its tokens: the role at the start and [DONE]. */
const OTHER_EVENTS = 2

const RETRY_MS = 20

/**
 * @typedef {{host: string, reply: Reply, onChunk: (chunk: Buffer) => void, body?: Buffer,
 *   bytes: Buffer}} Exchange
 */
/** @typedef {Exchange & {socket: import('node:net').Socket}} Connection */

export class Stream {
  #body
  #targets
  #on
  #tokens
  #startedMs = 0
  #ttftMs = 0
  #events = 0
  #endsOnNewline = false
  /** By target. @type {Map<string, Connection>} */
  #connections = new Map()

  /**
   * @param {number} index
   * @param {{promptBytes: number, tokens: number}} plan
   * @param {{prefill?: () => string, decode: () => string}} targets addresses, asked for before each request
   * @param {{tokens(count: number): void, end(ttftMs: number): void, error(message: string): void}} on
   */
  constructor(index, { promptBytes, tokens }, targets, on) {
    this.#body = chatBody({ promptBytes, tokens, stream: index })
    this.#tokens = tokens
    this.#targets = targets
    this.#on = on
  }

  start() {
    this.#startedMs = performance.now()
    const prefill = this.#targets.prefill?.()
    if (prefill === undefined) return this.#decode(this.#body)
    /** @type {Buffer[]} */
    const parts = []
    return this.#send(prefill, prefillBytes(this.#body), (chunk, reply) => {
      const { done, bodyAt } = reply.push(chunk)
      parts.push(chunk.subarray(bodyAt))
      if (done) this.#decode(decodeBytes(this.#body, Buffer.concat(parts)))
    })
  }

  /** @param {Buffer} body */
  #decode(body) {
    this.#events = 0
    this.#endsOnNewline = false
    this.#send(this.#targets.decode(), body, (chunk, reply) => {
      const { done, bodyAt } = reply.push(chunk)
      this.#count(chunk, bodyAt)
      if (done) this.#end(reply.status, chunk)
    })
  }

  /**
   * Counts blank lines, which end events and may be split between chunks.
   * @param {Buffer} chunk
   * @param {number} bodyAt
   */
  #count(chunk, bodyAt) {
    const before = this.#events
    let events = before
    if (this.#endsOnNewline && chunk[bodyAt] === NEWLINE) events++
    for (
      let at = chunk.indexOf('\n\n', bodyAt, 'latin1');
      at >= 0;
      at = chunk.indexOf('\n\n', at + 2, 'latin1')
    )
      events++
    this.#endsOnNewline = chunk[chunk.length - 1] === NEWLINE && chunk[chunk.length - 2] !== NEWLINE
    if (events === before) return
    if (before === 0) this.#ttftMs = performance.now() - this.#startedMs
    this.#events = events
    this.#on.tokens(Math.min(events - 1, this.#tokens) - Math.max(0, Math.min(before - 1, this.#tokens)))
  }

  /** @param {number} status @param {Buffer} chunk */
  #end(status, chunk) {
    if (status !== 200) this.#on.error(`${status}: ${chunk.toString('latin1').slice(-200)}`)
    else if (this.#events !== this.#tokens + OTHER_EVENTS)
      this.#on.error(`${this.#events} events for ${this.#tokens} tokens`)
    else this.#on.end(this.#ttftMs)
    setImmediate(() => this.start())
  }

  /** @param {string} url @param {Buffer} body @param {(chunk: Buffer, reply: Reply) => void} onChunk */
  #send(url, body, onChunk) {
    const connection = this.#connections.get(url) ?? this.#connect(url)
    const { socket, reply, host } = connection
    reply.reset()
    connection.onChunk = chunk => onChunk(chunk, reply)
    if (connection.body !== body) {
      connection.body = body // the request is the same each time, so its bytes are built once
      connection.bytes = requestBytes(body, host)
    }
    socket.write(connection.bytes)
  }

  /** @param {string} url */
  #connect(url) {
    const { hostname, port, host } = new URL(url)
    const socket = connect({ host: hostname, port: Number(port), noDelay: true })
    /** @type {Connection} */
    const made = {
      socket,
      host,
      reply: new Reply(),
      onChunk: () => undefined,
      body: undefined,
      bytes: Buffer.alloc(0),
    }
    socket.on('data', chunk => made.onChunk(chunk))
    socket.on('error', () => undefined) // `close` follows
    socket.on('close', () => {
      this.#connections.delete(url)
      this.#on.error('the connection was closed')
      setTimeout(() => this.start(), RETRY_MS)
    })
    this.#connections.set(url, made)
    return made
  }
}
