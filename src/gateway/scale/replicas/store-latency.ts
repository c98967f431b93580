/**
 * Measures the latency of a message through the store with this replica's own messages, which come back to
 * it.
 */

/** Weight of a new measurement in the moving average. */
const WEIGHT = 0.1

export class StoreLatency {
  #seq = 0
  #sentMs = 0
  #receivedMs = 0
  #transitMs = 0

  /** Moving average. */
  get transitMs(): number {
    return this.#transitMs
  }

  start(nowMs: number): void {
    this.#receivedMs = nowMs
  }

  sent(seq: number, nowMs: number): void {
    this.#seq = seq
    this.#sentMs = nowMs
  }

  received(seq: number, nowMs: number): void {
    this.#receivedMs = nowMs
    if (seq !== this.#seq) return
    const tookMs = nowMs - this.#sentMs
    this.#transitMs = this.#transitMs === 0 ? tookMs : (1 - WEIGHT) * this.#transitMs + WEIGHT * tookMs
  }

  /** Time since the last message came back. */
  silentMs(nowMs: number): number {
    return nowMs - this.#receivedMs
  }
}
