/**
 * Bytes that the bodies of all requests may take together while they are read. Each body has a limit of its own; without one for all of
 * them, clients that send much and never end would take the whole memory.
 */
export class ByteBudget {
  readonly most: number
  #taken = 0

  constructor(most: number) {
    this.most = most
  }

  get taken(): number {
    return this.#taken
  }

  open(): BudgetShare {
    let own = 0
    let isClosed = false
    return {
      take: bytes => {
        if (isClosed || this.#taken + bytes > this.most) return false
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

/** What one body has of it. */
export interface BudgetShare {
  /** False, and nothing taken, where there is no room. */
  take(bytes: number): boolean
  /** Gives everything back; any number of times. */
  close(): void
}

/** Of all bodies together, unless told. */
export const BODY_BUDGET_BYTES = 256 << 20
/** What the engine keeps for a piece beside its bytes: a body of single bytes takes a hundred times its length. */
export const PIECE_BYTES = 128
