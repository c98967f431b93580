/**
 * Random numbers that the policy in force drew, for the shadow policies to draw again: a tie that both see is
 * then broken alike, so that a policy agrees with itself.
 */
export class RecordedRandom {
  readonly #random: () => number
  readonly #drawn: number[] = []

  constructor(random: () => number) {
    this.#random = random
  }

  readonly random = (): number => this.#next(this.#drawn.length)

  /** The same numbers from the start, then new ones. */
  replay(): { random(): number } {
    let at = 0
    return { random: () => this.#next(at++) }
  }

  #next(at: number): number {
    return (this.#drawn[at] ??= this.#random())
  }
}
