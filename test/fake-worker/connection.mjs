// One connection of a peer: serves its requests one after another and notices when it leaves.
import { errorBody } from './bodies.mjs'
import { Exchange } from './exchange.mjs'
import { reset } from './faults.mjs'
import { RequestReader } from './http-reader.mjs'
import { answer } from './routes.mjs'

/**
 * Serves until the peer or a fault closes it. `busy`: a response is in progress.
 * @param {import('./fake-worker.mjs').FakeWorker} worker
 * @param {import('node:net').Socket} socket
 */
export function serve(worker, socket) {
  const reader = new RequestReader()
  const { keepAliveMs } = worker.settings
  /** @type {Exchange | undefined} */
  let exchange
  let reading = false

  /** Serves buffered requests one at a time; a response that ends at once does not deepen the stack. */
  function next() {
    if (reading) return
    reading = true
    while (exchange === undefined && !socket.destroyed && socket.writable) {
      const request = read()
      if (request === undefined) break
      begin(request)
    }
    reading = false
    if (exchange === undefined && keepAliveMs !== undefined) socket.setTimeout(keepAliveMs)
  }

  function read() {
    try {
      const request = reader.read()
      if (request === undefined && reader.takeExpectation()) socket.write('HTTP/1.1 100 Continue\r\n\r\n')
      return request
    } catch (error) {
      const body = errorBody(400, `Invalid HTTP request received: ${/** @type {Error} */ (error).message}`)
      worker.badFraming()
      socket.end(
        `HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
      )
      return undefined
    }
  }

  /** @param {import('./received-request.mjs').ReceivedRequest} request */
  function begin(request) {
    if (keepAliveMs !== undefined) socket.setTimeout(0)
    const onEnd = (/** @type {import('./exchange.mjs').Outcome} */ outcome) => {
      exchange = undefined
      worker.ended(request, outcome)
      if (outcome === 'aborted' || mine.last) return
      if (!request.keepAlive || !worker.listening || socket.readableEnded) socket.end()
      else next()
    }
    const mine = new Exchange(socket, request, onEnd, () => worker.held())
    exchange = mine
    worker.began(request)
    const fault = worker.faults.take(request)
    if (fault === undefined) answer(worker, mine)
    else mine.meet(fault, () => answer(worker, mine))
  }

  const left = () => exchange?.end('aborted')
  socket.on('data', chunk => {
    reader.push(chunk)
    if (exchange === undefined) next()
  })
  socket.on('end', () => {
    if (exchange?.unaware) return
    left()
    socket.end()
  })
  socket.on('close', left)
  socket.on('error', left)
  if (keepAliveMs !== undefined) socket.setTimeout(keepAliveMs, () => socket.end())
  return {
    socket,
    get busy() {
      return exchange !== undefined
    },
    reset() {
      if (exchange !== undefined) exchange.last = true
      exchange?.end('faulted')
      reset(socket)
    },
  }
}
