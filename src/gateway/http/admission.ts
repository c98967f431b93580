/**
 * Limits the number of requests in progress. Further requests wait in a queue, first in, first out. If the
 * queue is full, or the wait too long, they are refused with a Retry-After.
 */
import { Refusal } from './refusal.ts'
import type { StopSignal } from '../upstream/upstreams.ts'

export interface AdmissionLimits {
  /** 0: no limit. */
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

  /** Whether a new request would be queued: there is no place for it, but room in the queue. */
  get mustWait(): boolean {
    const { maxConcurrentRequests: max, queueSize } = this.#limits
    return max > 0 && (this.running >= max || this.#queue.size > 0) && this.#queue.size < queueSize
  }

  /** Whether a new request would be admitted at once. */
  get hasRoom(): boolean {
    const { maxConcurrentRequests: max } = this.#limits
    return max === 0 || (this.running < max && this.#queue.size === 0)
  }

  /** Neither a place nor room in the queue. */
  get isFull(): boolean {
    const { maxConcurrentRequests: max, queueSize } = this.#limits
    return max > 0 && this.running >= max && this.#queue.size >= queueSize
  }

  /** Throws a Refusal if full. */
  check(): void {
    if (this.isFull) throw this.#overloaded()
  }

  /**
   * Resolves when the request is admitted; call `leave` once when it has ended. Rejects with a Refusal, or on
   * `stop`.
   */
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
      const giveUp = (reason: Error) => {
        if (!this.#queue.delete(waiting)) return
        clearTimeout(timer)
        unhook()
        reject(reason)
      }
      const timer = setTimeout(
        () => giveUp(new Refusal('ELDR_QUEUE_TIMEOUT', { retryAfterSeconds: this.#retryAfterSeconds() })),
        queueTimeoutMs,
      )
      this.#queue.add(waiting)
      const unhook = stop.onStop(giveUp)
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

  #retryAfterSeconds(): number {
    return retryAfterSeconds(this.#limits, this.#queue.size)
  }
}

export function overloaded(limits: AdmissionLimits, queued: number): Refusal {
  return new Refusal('ELDR_OVERLOADED', { retryAfterSeconds: retryAfterSeconds(limits, queued) })
}

/** Grows with the queue, from 1 to 30 seconds. */
function retryAfterSeconds({ maxConcurrentRequests: max }: AdmissionLimits, queued: number): number {
  return Math.min(30, 1 + Math.floor((4 * queued) / Math.max(1, max)))
}
