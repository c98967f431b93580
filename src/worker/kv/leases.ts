/**
 * KV blocks that a prefill worker keeps for decode workers that are to come. Each has a lease; reading gives the blocks back, a
 * heartbeat renews the lease, and when it ends they are given back unread. A block is given back once, whatever comes together.
 */
import type { KeptBlocks } from '../types.ts'

export interface Kept {
  readonly blocks: KeptBlocks
  /** Of the prompt's token ids: a reader that has another prompt gets nothing. */
  readonly promptHash: string
}

export type LeaseEnd = 'read' | 'released' | 'expired' | 'closed'

export interface LeaseTimers {
  set(run: () => void, ms: number): unknown
  clear(timer: unknown): void
}

export interface LeaseBookOptions {
  readonly leaseMs: number
  readonly nowMs?: () => number
  readonly timers?: LeaseTimers
  readonly onEnd?: (id: string, end: LeaseEnd) => void
}

/** A renewal extends by two thirds of the lease, as vLLM's do. */
const RENEWED_SHARE = 2 / 3

const NODE_TIMERS: LeaseTimers = {
  set: (run, ms) => setTimeout(run, ms).unref(),
  clear: timer => clearTimeout(timer as NodeJS.Timeout),
}

interface Lease extends Kept {
  untilMs: number
  timer: unknown
}

export class LeaseBook {
  readonly leaseMs: number
  readonly #nowMs: () => number
  readonly #timers: LeaseTimers
  readonly #onEnd: (id: string, end: LeaseEnd) => void
  readonly #leases = new Map<string, Lease>()

  constructor({
    leaseMs,
    nowMs = () => performance.now(),
    timers = NODE_TIMERS,
    onEnd = () => {},
  }: LeaseBookOptions) {
    this.leaseMs = leaseMs
    this.#nowMs = nowMs
    this.#timers = timers
    this.#onEnd = onEnd
  }

  get size(): number {
    return this.#leases.size
  }

  get blocks(): number {
    let blocks = 0
    for (const lease of this.#leases.values()) blocks += lease.blocks.blockIds.length
    return blocks
  }

  keep(id: string, kept: Kept): void {
    if (this.#leases.has(id)) throw new Error(`blocks are kept twice for ${id}`)
    const lease: Lease = { ...kept, untilMs: this.#nowMs() + this.leaseMs, timer: undefined }
    this.#leases.set(id, lease)
    this.#arm(id, lease)
  }

  /** What is kept under this name, while its lease lasts. */
  find(id: string): Kept | undefined {
    const lease = this.#leases.get(id)
    if (lease === undefined) return undefined
    // A timer may be late; the lease is not.
    if (this.#nowMs() < lease.untilMs) return lease
    this.#end(id, 'expired')
    return undefined
  }

  /** False when there is nothing to renew any more. */
  renew(id: string): boolean {
    const lease = this.find(id) as Lease | undefined
    if (lease === undefined) return false
    const untilMs = this.#nowMs() + this.leaseMs * RENEWED_SHARE
    if (untilMs <= lease.untilMs) return true
    lease.untilMs = untilMs
    this.#timers.clear(lease.timer)
    this.#arm(id, lease)
    return true
  }

  /** Gives the blocks back. False when that was done before. */
  end(id: string, end: 'read' | 'released'): boolean {
    return this.#end(id, end)
  }

  close(): void {
    for (const id of this.#leases.keys()) this.#end(id, 'closed')
  }

  #arm(id: string, lease: Lease): void {
    const leftMs = Math.max(0, Math.ceil(lease.untilMs - this.#nowMs()))
    lease.timer = this.#timers.set(() => {
      if (this.#nowMs() >= lease.untilMs) this.#end(id, 'expired')
      else this.#arm(id, lease)
    }, leftMs)
  }

  #end(id: string, end: LeaseEnd): boolean {
    const lease = this.#leases.get(id)
    if (lease === undefined) return false
    this.#leases.delete(id)
    this.#timers.clear(lease.timer)
    lease.blocks.release()
    this.#onEnd(id, end)
    return true
  }
}
