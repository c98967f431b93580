// Injected faults, and the ways of sending bytes that some of them need.

/** Faults in order of injection; the first match applies. */
export class FaultList {
  /** @type {{fault: import('./types.ts').Fault, left: number, match: (request: any) => boolean}[]} */
  #list = []

  /**
   * @param {import('./types.ts').Fault} fault
   * @param {import('./types.ts').FaultScope} scope
   */
  add(fault, { times = Infinity, match = request => request.isGeneration } = {}) {
    this.#list.push({ fault, left: times, match })
  }

  clear() {
    this.#list = []
  }

  /** The fault for this request, if any. @param {import('./received-request.mjs').ReceivedRequest} request */
  take(request) {
    return this.#take(
      ({ fault, match }) => !(fault.kind === 'reset' && fault.after === 'accept') && match(request),
    )
  }

  /** True if this new connection should be reset. */
  takeAtAccept() {
    return this.#take(({ fault }) => fault.kind === 'reset' && fault.after === 'accept') !== undefined
  }

  /**
   * @param {(entry: {fault: import('./types.ts').Fault, match: (request: any) => boolean}) => boolean} wanted
   */
  #take(wanted) {
    if (this.#list.length === 0) return undefined
    const entry = this.#list.find(wanted)
    if (entry === undefined) return undefined
    if (--entry.left === 0) this.#list = this.#list.filter(other => other !== entry)
    return entry.fault
  }
}

/**
 * Destination of a response's bytes. `flushed` calls back when all of them were sent; a socket keeps the
 * order anyway.
 * @typedef {{write(data: string | Buffer, encoding?: BufferEncoding): boolean,
 *   flushed(done: () => void): void}} Sink
 */

/** @param {import('node:net').Socket} socket @returns {Sink} */
export function plainSink(socket) {
  return { write: (data, encoding) => socket.write(data, encoding), flushed: done => done() }
}

/**
 * Sends RST; a connection that is already closing can only be destroyed.
 * @param {import('node:net').Socket} socket
 */
export function reset(socket) {
  if (socket.writable) socket.resetAndDestroy()
  else socket.destroy()
}

/**
 * A few bytes at a time.
 * @param {import('node:net').Socket} socket
 * @param {{bytes?: number | undefined, everyMs?: number | undefined}} pace
 * @returns {Sink}
 */
export function dribble(socket, { bytes = 1, everyMs = 1 }) {
  let queue = Buffer.alloc(0)
  /** @type {NodeJS.Timeout | undefined} */
  let timer
  /** @type {(() => void) | undefined} */
  let whenFlushed
  const stop = () => {
    clearInterval(timer)
    timer = undefined
  }
  const step = () => {
    socket.write(queue.subarray(0, bytes))
    queue = queue.subarray(bytes)
    if (queue.length > 0) return
    stop()
    whenFlushed?.()
  }
  socket.once('close', stop)
  return {
    write(data) {
      queue = Buffer.concat([queue, typeof data === 'string' ? Buffer.from(data) : data])
      timer ??= setInterval(step, everyMs)
      return true
    },
    flushed(done) {
      if (queue.length === 0) done()
      else whenFlushed = done
    },
  }
}
