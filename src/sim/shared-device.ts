/**
 * A device that several engines share. A piece of work (the device's part of a step) is given as the time
 * that it takes alone; pieces at once slow each other, by one of two rules:
 *
 * - `layer`: engines take turns layer by layer, as kernels that each fill the GPU do. In a turn every piece
 *   advances by one layer, so all advance by the same share of themselves: with works wᵢ a piece takes Σw. An
 *   engine with a short step waits for the long ones.
 * - `bandwidth`: all get the same bandwidth (processor sharing): with n pieces each takes n times as long. An
 *   engine with a short step is ahead of the others.
 *
 * Both are fluid limits, exact to the rounding of floats and without events of their own: speeds change only
 * when a piece enters or ends, so only the earliest end has to be known. Entering and ending take O(n).
 */
import type { DeviceSharing } from '../cost/profile.ts'

interface Piece {
  readonly member: number
  readonly workUs: number
  /** Share of the work that is left. */
  left: number
}

export class SharedDevice {
  /** When the next piece ends if no other enters; Infinity if there is none. */
  dueUs = Infinity

  readonly #by: DeviceSharing['by']
  readonly #capacity: number
  #nowUs = 0
  /** In order of entry, and which of them ends first. */
  readonly #pieces: Piece[] = []
  #first = 0

  constructor({ by, capacity }: DeviceSharing) {
    if (!(capacity >= 1)) throw new RangeError(`capacity ${capacity}, below 1`)
    this.#by = by
    this.#capacity = capacity
  }

  get size(): number {
    return this.#pieces.length
  }

  enter(member: number, workUs: number, nowUs: number): void {
    this.#advance(nowUs)
    this.#pieces.push({ member, workUs, left: 1 })
    this.#findFirst()
  }

  /** Call at `dueUs`. Removes the piece that ends, the first to enter of several, and returns its member. */
  end(): number {
    this.#advance(this.dueUs)
    const [{ member }] = this.#pieces.splice(this.#first, 1) as [Piece]
    this.#findFirst()
    return member
  }

  /** Microseconds until a piece has advanced by all of itself, at the present speeds. */
  #wholeUs(piece: Piece, sumUs: number): number {
    const shared = this.#by === 'layer' ? sumUs : this.#pieces.length * piece.workUs
    return Math.max(piece.workUs, shared / this.#capacity)
  }

  #sumUs(): number {
    let sum = 0
    for (const piece of this.#pieces) sum += piece.workUs
    return sum
  }

  #advance(nowUs: number): void {
    const passedUs = nowUs - this.#nowUs
    this.#nowUs = nowUs
    if (passedUs === 0) return
    const sumUs = this.#sumUs()
    // Rounding may leave a piece with slightly less than nothing to do.
    for (const piece of this.#pieces)
      piece.left = Math.max(0, piece.left - passedUs / this.#wholeUs(piece, sumUs))
  }

  #findFirst(): void {
    const sumUs = this.#sumUs()
    let leastUs = Infinity
    this.#pieces.forEach((piece, at) => {
      // Work of no time is done at once, whatever the others do.
      const leftUs = piece.workUs === 0 ? 0 : piece.left * this.#wholeUs(piece, sumUs)
      if (leftUs >= leastUs) return
      leastUs = leftUs
      this.#first = at
    })
    this.dueUs = this.#nowUs + leastUs
  }
}
