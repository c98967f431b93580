/**
 * A random sample of live requests in bounded memory, in which a request counts half as much after each
 * half-life: a reservoir that keeps the highest of log(weight) + Gumbel noise, which is a draw without
 * replacement by weight. It holds expert counts and, where a worker has reported them, decode patterns; no
 * text.
 */
import type { Random } from '../math/random.ts'

export interface LiveSampleOptions {
  readonly capacity: number
  readonly halfLifeMs: number
  readonly random: Random
}

export interface SampledRequest {
  readonly id: string
  /** [cells] what the request's signature was made from. */
  readonly counts: Uint16Array | Float32Array
  /** [cells] plain counts, if `counts` are recent ones and the artifact has a second signature. */
  readonly plain?: Uint16Array
}

/** Copies that can be sent to a thread. Arrays are [rows × cells] unless noted. */
export interface SampleSnapshot {
  readonly rows: number
  readonly cells: number
  readonly counts: Uint16Array<ArrayBuffer>
  /** Absent unless every row has plain counts. */
  readonly plain?: Uint16Array<ArrayBuffer>
  /** Decode patterns in 255ths; rows of zeros where none was reported. */
  readonly patterns?: Uint8Array<ArrayBuffer>
  /** [rows] 1 if the row has a reported pattern. */
  readonly reported: Uint8Array<ArrayBuffer>
  /** [rows] 0: refits may use it; 1: held out. */
  readonly heldOut: Uint8Array<ArrayBuffer>
}

const MAX_COUNT = 65_535

export class LiveSample {
  readonly #options: LiveSampleOptions
  readonly #ids: string[] = []
  readonly #slotOf = new Map<string, number>()
  readonly #atMs: Float64Array
  readonly #priority: Float64Array
  readonly #heldOut: Uint8Array
  readonly #reported: Uint8Array
  #cells = 0
  #counts = new Uint16Array(0)
  #plain: Uint16Array | undefined
  #patterns: Uint8Array | undefined
  /** Slot with the lowest priority of a full sample. */
  #lowest = 0

  constructor(options: LiveSampleOptions) {
    const { capacity } = options
    this.#options = options
    this.#atMs = new Float64Array(capacity)
    this.#priority = new Float64Array(capacity)
    this.#heldOut = new Uint8Array(capacity)
    this.#reported = new Uint8Array(capacity)
  }

  get size(): number {
    return this.#ids.length
  }

  get reported(): number {
    return this.#reported.subarray(0, this.size).reduce((sum, flag) => sum + flag, 0)
  }

  get bytes(): number {
    return this.#counts.byteLength + (this.#plain?.byteLength ?? 0) + (this.#patterns?.byteLength ?? 0)
  }

  /** Requests that arrived at `sinceMs` or later. */
  countSince(sinceMs: number): number {
    let count = 0
    for (let slot = 0; slot < this.size; slot++) if (this.#atMs[slot]! >= sinceMs) count++
    return count
  }

  /**
   * Whether this is a retry of a sampled request. The id alone does not tell: a client may send the same one
   * with every request.
   */
  has({ id, counts }: SampledRequest): boolean {
    const slot = this.#slotOf.get(id)
    if (slot === undefined || counts.length !== this.#cells) return false
    const scale = scaleOf(counts)
    const from = slot * this.#cells
    for (let cell = 0; cell < counts.length; cell++)
      if (Math.round(counts[cell]! * scale) !== this.#counts[from + cell]) return false
    return true
  }

  offer(request: SampledRequest, atMs: number): void {
    const { capacity, halfLifeMs, random } = this.#options
    if (request.counts.length !== this.#cells) this.#begin(request.counts.length)
    const gumbel = -Math.log(-Math.log(Math.max(random.uniform(), Number.MIN_VALUE)))
    const priority = (Math.LN2 * atMs) / halfLifeMs + gumbel
    const isFull = this.size === capacity
    if (isFull && priority <= this.#priority[this.#lowest]!) return
    const slot = isFull ? this.#lowest : this.size
    if (isFull && this.#slotOf.get(this.#ids[slot]!) === slot) this.#slotOf.delete(this.#ids[slot]!)
    this.#put(slot, request)
    this.#atMs[slot] = atMs
    this.#priority[slot] = priority
    this.#heldOut[slot] = random.below(2)
    if (this.size === capacity) this.#findLowest()
  }

  /** Decode pattern of a request in 255ths of its steps. Ignored if the request is not in the sample. */
  report(id: string, pattern: Uint8Array): void {
    const slot = this.#slotOf.get(id)
    if (slot === undefined || pattern.length !== this.#cells) return
    this.#patterns ??= new Uint8Array(this.#options.capacity * this.#cells)
    this.#patterns.set(pattern, slot * this.#cells)
    this.#reported[slot] = 1
  }

  /** Requests that arrived at `sinceMs` or later, oldest first. */
  snapshot(sinceMs = -Infinity): SampleSnapshot {
    const slots = Array.from(this.#ids.keys())
      .filter(slot => this.#atMs[slot]! >= sinceMs)
      .sort((a, b) => this.#atMs[a]! - this.#atMs[b]!)
    const cells = this.#cells
    const [plain, patterns] = [this.#plain, this.#patterns]
    return {
      rows: slots.length,
      cells,
      counts: rowsOf(this.#counts, new Uint16Array(slots.length * cells), slots, cells),
      plain: plain && rowsOf(plain, new Uint16Array(slots.length * cells), slots, cells),
      patterns: patterns && rowsOf(patterns, new Uint8Array(slots.length * cells), slots, cells),
      reported: Uint8Array.from(slots, slot => this.#reported[slot]!),
      heldOut: Uint8Array.from(slots, slot => this.#heldOut[slot]!),
    }
  }

  /** Empties it: counts of another model, or of another kind, cannot be mixed. */
  #begin(cells: number): void {
    this.#cells = cells
    this.#counts = new Uint16Array(this.#options.capacity * cells)
    this.forget()
  }

  forget(): void {
    this.#ids.length = 0
    this.#slotOf.clear()
    this.#reported.fill(0)
    this.#plain = undefined
    this.#patterns = undefined
  }

  #put(slot: number, { id, counts, plain }: SampledRequest): void {
    const cells = this.#cells
    const to = this.#counts.subarray(slot * cells, (slot + 1) * cells)
    if (counts instanceof Uint16Array) to.set(counts)
    else {
      const scale = scaleOf(counts)
      for (let c = 0; c < cells; c++) to[c] = Math.round(counts[c]! * scale)
    }
    if (plain !== undefined && (slot === 0 || this.#plain !== undefined)) {
      this.#plain ??= new Uint16Array(this.#options.capacity * cells)
      this.#plain.set(plain, slot * cells)
    } else this.#plain = undefined
    this.#patterns?.fill(0, slot * cells, (slot + 1) * cells)
    this.#reported[slot] = 0
    this.#ids[slot] = id
    this.#slotOf.set(id, slot)
  }

  #findLowest(): void {
    for (let slot = 0; slot < this.size; slot++)
      if (this.#priority[slot]! < this.#priority[this.#lowest]!) this.#lowest = slot
  }
}

/** Whole counts stay as they are. Others fill the range: a signature does not depend on their scale. */
function scaleOf(counts: SampledRequest['counts']): number {
  if (counts instanceof Uint16Array) return 1
  let most = Number.MIN_VALUE
  for (const count of counts) most = Math.max(most, count)
  return MAX_COUNT / most
}

function rowsOf<T extends Uint16Array<ArrayBuffer> | Uint8Array<ArrayBuffer>>(
  from: Uint16Array | Uint8Array,
  to: T,
  slots: readonly number[],
  cells: number,
): T {
  slots.forEach((slot, row) => to.set(from.subarray(slot * cells, (slot + 1) * cells), row * cells))
  return to
}
