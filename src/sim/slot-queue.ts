/** A first-in, first-out queue of request slots: a growing ring. Preempted requests go back to the front. */
export class SlotQueue {
  #ring = new Int32Array(16)
  #head = 0
  #size = 0

  get size(): number {
    return this.#size
  }

  /** The queue is not empty. */
  get first(): number {
    return this.#ring[this.#head]!
  }

  push(slot: number): void {
    this.#makeRoom()
    this.#ring[(this.#head + this.#size++) & (this.#ring.length - 1)] = slot
  }

  pushFront(slot: number): void {
    this.#makeRoom()
    this.#head = (this.#head - 1) & (this.#ring.length - 1)
    this.#ring[this.#head] = slot
    this.#size++
  }

  /** The queue is not empty. */
  shift(): number {
    const slot = this.first
    this.#head = (this.#head + 1) & (this.#ring.length - 1)
    this.#size--
    return slot
  }

  #makeRoom(): void {
    const { length } = this.#ring
    if (this.#size < length) return
    const ring = new Int32Array(2 * length) // a power of two, so that a mask wraps around
    for (let i = 0; i < length; i++) ring[i] = this.#ring[(this.#head + i) & (length - 1)]!
    this.#ring = ring
    this.#head = 0
  }
}
