/**
 * Events by time, those of one time in insertion order, so that a run can be repeated. A binary heap in flat
 * arrays; popping fills the queue's own fields, so that no event is ever an object.
 */
export class EventQueue {
  /** The event popped last. */
  timeUs = 0
  kind = 0
  subject = 0

  #size = 0
  #pushed = 0
  #timeUs: Float64Array
  #sequence: Float64Array
  #kind: Uint8Array
  #subject: Int32Array

  constructor(capacity = 64) {
    this.#timeUs = new Float64Array(capacity)
    this.#sequence = new Float64Array(capacity)
    this.#kind = new Uint8Array(capacity)
    this.#subject = new Int32Array(capacity)
  }

  get size(): number {
    return this.#size
  }

  push(timeUs: number, kind: number, subject: number): void {
    if (this.#size === this.#timeUs.length) this.#grow()
    const sequence = this.#pushed++
    let at = this.#size++
    while (at > 0) {
      const parent = (at - 1) >> 1
      if (this.#timeUs[parent]! <= timeUs) break // a parent with the same time was pushed earlier
      this.#move(parent, at)
      at = parent
    }
    this.#timeUs[at] = timeUs
    this.#sequence[at] = sequence
    this.#kind[at] = kind
    this.#subject[at] = subject
  }

  /** False if there is no event left. */
  pop(): boolean {
    if (this.#size === 0) return false
    this.timeUs = this.#timeUs[0]!
    this.kind = this.#kind[0]!
    this.subject = this.#subject[0]!
    const last = --this.#size
    let at = 0
    for (let child = 1; child < last; child = 2 * at + 1) {
      if (child + 1 < last && this.#before(child + 1, child)) child++
      if (this.#before(last, child)) break
      this.#move(child, at)
      at = child
    }
    this.#move(last, at)
    return true
  }

  #before(a: number, b: number): boolean {
    const difference = this.#timeUs[a]! - this.#timeUs[b]!
    return difference < 0 || (difference === 0 && this.#sequence[a]! < this.#sequence[b]!)
  }

  #move(from: number, to: number): void {
    this.#timeUs[to] = this.#timeUs[from]!
    this.#sequence[to] = this.#sequence[from]!
    this.#kind[to] = this.#kind[from]!
    this.#subject[to] = this.#subject[from]!
  }

  #grow(): void {
    const size = 2 * this.#timeUs.length
    const [timeUs, sequence, kind, subject] = [this.#timeUs, this.#sequence, this.#kind, this.#subject]
    this.#timeUs = new Float64Array(size)
    this.#timeUs.set(timeUs)
    this.#sequence = new Float64Array(size)
    this.#sequence.set(sequence)
    this.#kind = new Uint8Array(size)
    this.#kind.set(kind)
    this.#subject = new Int32Array(size)
    this.#subject.set(subject)
  }
}
