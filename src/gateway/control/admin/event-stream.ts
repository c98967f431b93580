/**
 * GET /eldr/events: server-sent events. A reader that is slower than the gateway loses events, and is told how many when it has caught up;
 * what waits for it in memory is bounded.
 */
import type { Exchange } from '../../http/exchange.ts'
import type { Outcome } from '../../observe/request-observer.ts'
import { Refusal } from '../../http/refusal.ts'
import { type Follower, MAX_FOLLOWERS } from '../../observe/events.ts'

/** Bytes that may wait for one reader. */
const MAX_WAITING_BYTES = 256 << 10
/** Proxies close what is silent for a minute. */
const KEEP_ALIVE_MS = 15_000
/** A reader that takes nothing for so long makes room for others. */
const STALLED_MS = 60_000
const HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-store',
  'x-accel-buffering': 'no',
}

/** What readers follow. */
export interface EventSource {
  follow(follower: Follower, most: number): (() => void) | undefined
}

export class EventStreams {
  readonly #events: EventSource
  readonly #greeting: () => string
  readonly #open = new Set<() => void>()
  #closed = false

  /** `greeting`: the first that a reader gets. */
  constructor(events: EventSource, greeting: () => string = () => ': events of the gateway from now on\n\n') {
    this.#events = events
    this.#greeting = greeting
  }

  /** Resolves when the reader has left, or the gateway stops. `most`: readers among which there is a place for this one. */
  serve(exchange: Exchange, most = MAX_FOLLOWERS): Promise<Outcome> {
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
        // Once one is lost all are, until the reader is told: the gap must not lie behind what it missed.
        if (lost > 0 || response.writableLength > MAX_WAITING_BYTES) lost++
        else response.write(event)
      }
      exchange.takeAnyTime()
      const unfollow = this.#events.follow(send, most)
      if (unfollow === undefined)
        return reject(
          new Refusal('ELDR_OVERLOADED', { words: `${most} readers follow already.`, retryAfterSeconds: 5 }),
        )
      response.writeHead(200, { 'x-request-id': exchange.id, ...HEADERS })
      // Browsers come back by themselves; what happened meanwhile they read from the other routes.
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

  /** They would keep a gateway that stops waiting until its grace is over. */
  close(): void {
    this.#closed = true
    for (const end of this.#open) end()
  }
}
