/**
 * The requests in flight, a slot each in flat arrays. A slot is taken at arrival and given back at the end, so memory follows the number
 * in flight and not the number simulated.
 */
import type { RoutableRequest } from '../policy/decode-policy.ts'

export class RequestPool {
  /** Request number in order of arrival. */
  index = new Int32Array(64)
  row = new Int32Array(64)
  promptTokens = new Int32Array(64)
  /** Tokens that decode will make: all but the first. */
  decodeTokens = new Int32Array(64)
  /** Tokens that decode has made. Kept by the worker while the request is in its batch, and here otherwise. */
  generated = new Int32Array(64)
  prefillWorker = new Int32Array(64)
  decodeWorker = new Int32Array(64)
  /** 1 after a preemption, until its context has been computed again. */
  recompute = new Uint8Array(64)
  arrivalUs = new Float64Array(64)
  /** NaN before the first token. */
  firstTokenUs = new Float64Array(64)
  firstDecodeUs = new Float64Array(64)
  lastTokenUs = new Float64Array(64)
  readonly routable: (RoutableRequest | undefined)[] = []
  /** Whole blocks of the prompt, as ids that name the text up to their ends; none where prefixes are not looked at. */
  readonly blocks: ArrayLike<number>[] = []
  #free: number[] = []
  #slots = 0

  get inflight(): number {
    return this.#slots - this.#free.length
  }

  take(): number {
    const slot = this.#free.pop() ?? this.#slots++
    if (slot === this.row.length) this.#grow()
    this.generated[slot] = 0
    this.recompute[slot] = 0
    this.firstTokenUs[slot] = NaN
    this.firstDecodeUs[slot] = NaN
    this.lastTokenUs[slot] = NaN
    return slot
  }

  giveBack(slot: number): void {
    this.routable[slot] = undefined
    this.blocks[slot] = []
    this.#free.push(slot)
  }

  /** Tokens of context that the request holds when it is not in a batch. */
  contextTokens(slot: number): number {
    return this.promptTokens[slot]! + this.generated[slot]!
  }

  #grow(): void {
    this.index = doubled(this.index)
    this.row = doubled(this.row)
    this.promptTokens = doubled(this.promptTokens)
    this.decodeTokens = doubled(this.decodeTokens)
    this.generated = doubled(this.generated)
    this.prefillWorker = doubled(this.prefillWorker)
    this.decodeWorker = doubled(this.decodeWorker)
    this.recompute = doubled(this.recompute)
    this.arrivalUs = doubled(this.arrivalUs)
    this.firstTokenUs = doubled(this.firstTokenUs)
    this.firstDecodeUs = doubled(this.firstDecodeUs)
    this.lastTokenUs = doubled(this.lastTokenUs)
  }
}

function doubled<T extends Int32Array | Uint8Array | Float64Array>(array: T): T {
  const larger = new (array.constructor as new (length: number) => T)(2 * array.length)
  larger.set(array)
  return larger
}
