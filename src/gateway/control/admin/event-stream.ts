/**
 * Streams server-sent events (GET /eldr/events, GET /eldr/pulse). A slow reader loses events, and a `lost`
 * event tells it how many; the memory per reader is limited.
 */
import type { Exchange } from '../../http/exchange.ts'
import type { Outcome } from '../../observe/request-observer.ts'
import { Refusal } from '../../http/refusal.ts'
import { type Follower, MAX_FOLLOWERS } from '../../observe/events.ts'

/** Max bytes buffered per reader. */
const MAX_WAITING_BYTES = 256 << 10
/** Proxies close connections that are silent for a minute. */
const KEEP_ALIVE_MS = 15_000
/** A reader that reads nothing for this long is disconnected. */
const STALLED_MS = 60_000
const HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-store',
  'x-accel-buffering': 'no',
}

/** Source of events. Returns undefined if it already has `limit` followers. */
export interface EventSource {
  follow(follower: Follower, limit: number): (() => void) | undefined
}

export class EventStreams {
  readonly #events: EventSource
  readonly #greeting: () => string
  readonly #open = new Set<() => void>()
  #closed = false

  /** `greeting`: the first event of each stream. */
  constructor(events: EventSource, greeting: () => string = () => ': events of the gateway from now on\n\n') {
    this.#events = events
    this.#greeting = greeting
  }

  /** Resolves when the client disconnects or the gateway stops. `limit`: max number of readers. */
  serve(exchange: Exchange, limit = MAX_FOLLOWERS): Promise<Outcome> {
    const { response } = exchange
    return new Promise((resolve, reject) => {
      if (this.#closed) return reject(new Refusal('ELDR_DRAINING', { retryAfterSeconds: 1 }))
      if (response.destroyed) return resolve('client_gone')
      if (exchange.request.method === 'HEAD') {
        exchange.response.writeHead(200, { 'x-request-id': exchange.id, ...HEADERS }).end()
        return resolve('ok')
      }
      let lost = 0
      const send = (event: string) => {
        // After one lost event, drop all until the reader has been told, so that the order stays correct.
        if (lost > 0 || response.writableLength > MAX_WAITING_BYTES) lost++
        else response.write(event)
      }
      exchange.removeTimeLimit()
      const unfollow = this.#events.follow(send, limit)
      if (unfollow === undefined)
        return reject(
          new Refusal('ELDR_OVERLOADED', {
            words: `Limit of ${limit} readers reached.`,
            retryAfterSeconds: 5,
          }),
        )
      response.writeHead(200, { 'x-request-id': exchange.id, ...HEADERS })
      // Browsers reconnect by themselves and read the current state from other routes.
      response.write(`retry: 2000\n${this.#greeting()}`)
      let movedMs = performance.now()
      response.on('drain', () => {
        movedMs = performance.now()
        if (lost === 0) return
        const missed = lost
        lost = 0
        response.write(`event: lost\ndata: ${JSON.stringify({ events: missed })}\n\n`)
      })
      const keepAlive = setInterval(() => {
        if (response.writableLength === 0) {
          movedMs = performance.now()
          response.write(':\n\n')
        } else if (performance.now() - movedMs > STALLED_MS) response.destroy()
      }, KEEP_ALIVE_MS).unref()
      const end = () => void response.end()
      this.#open.add(end)
      const unhook = exchange.onStop(end)
      response.once('close', () => {
        clearInterval(keepAlive)
        unfollow()
        unhook()
        this.#open.delete(end)
        resolve('ok')
      })
    })
  }

  /** Open streams would delay shutdown until the grace period ends. */
  close(): void {
    this.#closed = true
    for (const end of this.#open) end()
  }
}
