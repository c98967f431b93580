/**
 * A device whose memory bandwidth several engines share: processor sharing, exact to the rounding of floats.
 * A piece of work is given as the time that it takes alone. With n pieces at once each advances at
 * min(1, capacity/n) of that speed. All advance equally, so one virtual clock does: a piece that needs w ends
 * when the clock has advanced by w, and only the earliest end has to be known. Entering and ending take O(n).
 */
export class SharedDevice {
  /** When the next piece ends if no other enters; Infinity if there is none. */
  dueUs = Infinity

  readonly #capacity: number
  /** Time that each piece of work has advanced since the device was idle. */
  #clockUs = 0
  #nowUs = 0
  /** In order of entry. */
  readonly #members: number[] = []
  readonly #endUs: number[] = []

  /**
   * `capacity`: pieces of work that the device does at full speed. 1: one alone uses all its bandwidth; 1.25:
   * one alone uses 80 %.
   */
  constructor(capacity = 1) {
    if (!(capacity >= 1)) throw new RangeError(`capacity ${capacity}, below 1`)
    this.#capacity = capacity
  }

  get size(): number {
    return this.#members.length
  }

  enter(member: number, workUs: number, nowUs: number): void {
    this.#advance(nowUs)
    this.#members.push(member)
    this.#endUs.push(this.#clockUs + workUs)
    this.#setDue()
  }

  /** Call at `dueUs`. Removes the piece that ends, the first to enter of several, and returns its member. */
  end(): number {
    const first = this.#first()
    this.#nowUs = this.dueUs
    this.#clockUs = this.#endUs[first]! // not by adding, so that no rounding is left over
    const member = this.#members.splice(first, 1)[0]!
    this.#endUs.splice(first, 1)
    if (this.#members.length === 0) this.#clockUs = 0 // a clock that runs for hours would lose digits
    this.#setDue()
    return member
  }

  get #speed(): number {
    return Math.min(1, this.#capacity / this.#members.length)
  }

  #advance(nowUs: number): void {
    if (this.#members.length > 0) this.#clockUs += (nowUs - this.#nowUs) * this.#speed
    this.#nowUs = nowUs
  }

  #setDue(): void {
    const leftUs = this.#members.length === 0 ? Infinity : this.#endUs[this.#first()]! - this.#clockUs
    // Rounding may leave a piece with slightly less than nothing to do.
    this.dueUs = leftUs === Infinity ? Infinity : this.#nowUs + Math.max(0, leftUs) / this.#speed
  }

  #first(): number {
    let first = 0
    for (let at = 1; at < this.#endUs.length; at++) if (this.#endUs[at]! < this.#endUs[first]!) first = at
    return first
  }
}
