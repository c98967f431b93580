/**
 * How many requests are in the gateway at once. More wait in a queue, first come first served; when that is full, or the wait too long,
 * they are refused with a time to come back. Short and long requests wait alike: a place is a place.
 */
import { Refusal } from './refusal.ts'
import type { StopSignal } from '../upstream/upstreams.ts'

export interface AdmissionLimits {
  /** 0 is no limit. */
  readonly maxConcurrentRequests: number
  readonly queueSize: number
  readonly queueTimeoutMs: number
}

interface Waiting {
  admit(): void
}

export class Admission {
  running = 0
  readonly #limits: AdmissionLimits
  readonly #queue = new Set<Waiting>()

  constructor(limits: AdmissionLimits) {
    this.#limits = limits
  }

  get queued(): number {
    return this.#queue.size
  }

  /** Whether who enters now has to wait; not so when there is a place, nor when there is no room in the queue either. */
  get mustWait(): boolean {
    const { maxConcurrentRequests: most, queueSize } = this.#limits
    return most > 0 && (this.running >= most || this.#queue.size > 0) && this.#queue.size < queueSize
  }

  /** Whether who enters now need not wait. */
  get hasRoom(): boolean {
    const { maxConcurrentRequests: most } = this.#limits
    return most === 0 || (this.running < most && this.#queue.size === 0)
  }

  /** There is no place, nor one in the queue. */
  get isFull(): boolean {
    const { maxConcurrentRequests: most, queueSize } = this.#limits
    return most > 0 && this.running >= most && this.#queue.size >= queueSize
  }

  /** Throws a Refusal when it is full. */
  check(): void {
    if (this.isFull) throw this.#overloaded()
  }

  /** Resolves when the request may go on; call `leave` once when it has ended. Rejects with a Refusal, or when `stop` happens. */
  enter(stop: StopSignal): Promise<void> {
    const { queueSize, queueTimeoutMs } = this.#limits
    if (this.hasRoom) {
      this.running++
      return Promise.resolve()
    }
    if (this.#queue.size >= queueSize) return Promise.reject(this.#overloaded())
    return new Promise((resolve, reject) => {
      const waiting: Waiting = {
        admit: () => {
          this.#queue.delete(waiting)
          clearTimeout(timer)
          unhook()
          this.running++
          resolve()
        },
      }
      const give = (reason: Error) => {
        if (!this.#queue.delete(waiting)) return
        clearTimeout(timer)
        unhook()
        reject(reason)
      }
      const timer = setTimeout(
        () => give(new Refusal('ELDR_QUEUE_TIMEOUT', { retryAfterSeconds: this.#comeBackSeconds() })),
        queueTimeoutMs,
      )
      this.#queue.add(waiting)
      const unhook = stop.onStop(give)
    })
  }

  leave(): void {
    this.running--
    const [next] = this.#queue
    next?.admit()
  }

  #overloaded(): Refusal {
    return overloaded(this.#limits, this.#queue.size)
  }

  #comeBackSeconds(): number {
    return comeBackSeconds(this.#limits, this.#queue.size)
  }
}

export function overloaded(limits: AdmissionLimits, queued: number): Refusal {
  return new Refusal('ELDR_OVERLOADED', { retryAfterSeconds: comeBackSeconds(limits, queued) })
}

/** The fuller the queue, the later; never at once, and never so late that a client gives up. */
function comeBackSeconds({ maxConcurrentRequests: most }: AdmissionLimits, queued: number): number {
  return Math.min(30, 1 + Math.floor((4 * queued) / Math.max(1, most)))
}
