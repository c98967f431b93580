/** Mean rank of live requests over time, for the dashboard; see `drift-detector.ts`. */
export interface DriftPoint {
  readonly fromMs: number
  readonly meanRank: number
  readonly requests: number
}

const SLICE_MS = 15_000
/** One hour. */
const SLICES = 240

export class DriftHistory {
  readonly #slices: { readonly number: number; sum: number; count: number }[] = []

  add(rank: number, atMs: number): void {
    const number = Math.floor(atMs / SLICE_MS)
    let last = this.#slices.at(-1)
    if (last === undefined || last.number < number) {
      this.#slices.push((last = { number, sum: 0, count: 0 }))
      if (this.#slices.length > SLICES) this.#slices.shift()
    }
    last.sum += rank
    last.count++
  }

  points(): DriftPoint[] {
    return this.#slices.map(({ number, sum, count }) => ({
      fromMs: number * SLICE_MS,
      meanRank: sum / count,
      requests: count,
    }))
  }
}
