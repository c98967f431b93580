// Counters and events of a worker, and ways to wait for them, so that tests never wait for a fixed time.
import { EventEmitter, once } from 'node:events'

const WAIT_MS = 120_000

/** @returns {import('./types.ts').Counters} */
export const zeros = () => ({
  connections: 0,
  active: 0,
  prefill: 0,
  decode: 0,
  other: 0,
  completed: 0,
  aborted: 0,
  faulted: 0,
  held: 0,
  rejected: 0,
  badFraming: 0,
  misdirected: 0,
  noKv: 0,
  eldrAtDecode: 0,
  handoffsGiven: 0,
  handoffsRead: 0,
  handoffsUnknown: 0,
  tokensSent: 0,
})

export class Watched {
  counters = zeros()
  events = new EventEmitter().setMaxListeners(0)

  changed() {
    this.events.emit('change')
  }

  /** @param {string} event */
  async once(event) {
    const [payload] = await once(this.events, event)
    return payload
  }

  /**
   * Checks on every change, so that short-lived states are not missed.
   * @param {(counters: import('./types.ts').Counters) => boolean} wanted
   * @returns {Promise<void>}
   */
  waitFor(wanted, timeoutMs = WAIT_MS) {
    return new Promise((done, fail) => {
      const stop = () => {
        clearTimeout(timer)
        this.events.off('change', look)
      }
      const look = () => {
        if (!wanted(this.counters)) return
        stop()
        done()
      }
      const timer = setTimeout(() => {
        stop()
        fail(new Error(`not within ${timeoutMs} ms: ${wanted}; counters: ${JSON.stringify(this.counters)}`))
      }, timeoutMs)
      this.events.on('change', look)
      look()
    })
  }

  /** @param {number} count */
  waitForActive(count) {
    return this.waitFor(({ active }) => active === count)
  }

  /** @param {number} count */
  waitForRequests(count) {
    return this.waitFor(({ prefill, decode }) => prefill + decode >= count)
  }

  /** @param {number} count */
  waitForAborts(count) {
    return this.waitFor(({ aborted }) => aborted >= count)
  }
}
