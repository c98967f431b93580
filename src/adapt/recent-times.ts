/** The last times of something, with when each ended. */
export class RecentTimes {
  readonly #kept: number
  readonly #entries: { readonly atMs: number; readonly value: number }[] = []

  constructor(kept: number) {
    this.#kept = kept
  }

  add(value: number, atMs: number): void {
    this.#entries.push({ atMs, value })
    // In halves, because a shift for each would move the whole list.
    if (this.#entries.length > 2 * this.#kept) this.#entries.splice(0, this.#kept)
  }

  /** In order, from `fromMs` until before `toMs`; the last ones if there are more than are kept. */
  between(fromMs: number, toMs = Infinity): number[] {
    return this.#entries
      .filter(({ atMs }) => atMs >= fromMs && atMs < toMs)
      .slice(-this.#kept)
      .map(({ value }) => value)
  }

  /** How many ended from `fromMs` until before `toMs`, and since when, as far as they are kept. */
  spanOf(fromMs: number, toMs: number): { readonly count: number; readonly sinceMs: number } {
    const count = this.#entries.filter(({ atMs }) => atMs >= fromMs && atMs < toMs).length
    return { count, sinceMs: Math.max(fromMs, this.#entries[0]?.atMs ?? fromMs) }
  }
}
