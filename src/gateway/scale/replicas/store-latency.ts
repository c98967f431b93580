/** How long a message takes through the store, from this replica's own, which come back to it like everybody's. */

/** The part that a new measurement has in the mean. */
const WEIGHT = 0.1

export class Echo {
  #seq = 0
  #sentMs = 0
  #heardMs = 0
  #transitMs = 0

  /** Smoothed. */
  get transitMs(): number {
    return this.#transitMs
  }

  begin(nowMs: number): void {
    this.#heardMs = nowMs
  }

  sent(seq: number, nowMs: number): void {
    this.#seq = seq
    this.#sentMs = nowMs
  }

  heard(seq: number, nowMs: number): void {
    this.#heardMs = nowMs
    if (seq !== this.#seq) return
    const tookMs = nowMs - this.#sentMs
    this.#transitMs = this.#transitMs === 0 ? tookMs : (1 - WEIGHT) * this.#transitMs + WEIGHT * tookMs
  }

  /** Since the last one came back. */
  silentMs(nowMs: number): number {
    return nowMs - this.#heardMs
  }
}
