/**
 * KV blocks that a prefill worker holds for decode workers. Each set of blocks has a lease: reading frees the
 * blocks, a heartbeat renews the lease, and on expiry the blocks are freed unread. Blocks are freed exactly
 * once.
 */
import type { KeptBlocks } from '../types.ts'

export interface Kept {
  readonly blocks: KeptBlocks
  /** Hash of the prompt’s token ids: a reader with another prompt is refused. */
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

/** A renewal extends the lease by two thirds of its duration, as in vLLM. */
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
    if (this.#leases.has(id)) throw new Error(`${id} already has a lease`)
    const lease: Lease = { ...kept, untilMs: this.#nowMs() + this.leaseMs, timer: undefined }
    this.#leases.set(id, lease)
    this.#arm(id, lease)
  }

  /** The blocks leased under this id, unless the lease has expired. */
  find(id: string): Kept | undefined {
    const lease = this.#leases.get(id)
    if (lease === undefined) return undefined
    // The timer may fire late; the lease still ends on time.
    if (this.#nowMs() < lease.untilMs) return lease
    this.#end(id, 'expired')
    return undefined
  }

  /** False if there is no such lease. */
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

  /** Frees the blocks. False if they were freed before. */
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
