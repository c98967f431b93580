/** Recent data in time slices. Old slices are dropped; a time without data has no slice. */
export class TimeSlices<Slice> {
  readonly sliceMs: number
  readonly #kept: number
  readonly #make: () => Slice
  readonly #slices: { readonly number: number; readonly slice: Slice }[] = []

  constructor(sliceMs: number, kept: number, make: () => Slice) {
    this.sliceMs = sliceMs
    this.#kept = kept
    this.#make = make
  }

  /** The slice of `nowMs`. If the clock was set back, the last slice. */
  at(nowMs: number): Slice {
    const number = Math.floor(nowMs / this.sliceMs)
    const last = this.#slices.at(-1)
    if (last !== undefined && last.number >= number) return last.slice
    const slice = this.#make()
    this.#slices.push({ number, slice })
    while (this.#slices[0]!.number <= number - this.#kept) this.#slices.shift()
    return slice
  }

  /** Slices of the last `ms`, oldest first. */
  since(nowMs: number, ms = Infinity): { readonly fromMs: number; readonly slice: Slice }[] {
    const first = Math.floor((nowMs - Math.min(ms, this.#kept * this.sliceMs)) / this.sliceMs)
    return this.#slices
      .filter(({ number }) => number > first)
      .map(({ number, slice }) => ({ fromMs: number * this.sliceMs, slice }))
  }
}
