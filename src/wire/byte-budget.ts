/**
 * Limit on the bytes of all request bodies together while they are read. Each body has its own limit; without
 * a total, clients that send a lot and never finish would use up the memory.
 */
export class ByteBudget {
  readonly max: number
  #taken = 0

  constructor(max: number) {
    this.max = max
  }

  get taken(): number {
    return this.#taken
  }

  open(): BudgetShare {
    let own = 0
    let isClosed = false
    return {
      take: bytes => {
        if (isClosed || this.#taken + bytes > this.max) return false
        own += bytes
        this.#taken += bytes
        return true
      },
      close: () => {
        isClosed = true
        this.#taken -= own
        own = 0
      },
    }
  }
}

/** The share of one body. */
export interface BudgetShare {
  /** False, and nothing taken, if there is no room. */
  take(bytes: number): boolean
  /** Gives everything back; may be called repeatedly. */
  close(): void
}

/** Default limit for all bodies together. */
export const BODY_BUDGET_BYTES = 256 << 20
/**
 * Memory that the engine needs for a chunk besides its bytes: a body of single bytes takes a hundred times
 * its length.
 */
export const PIECE_BYTES = 128
