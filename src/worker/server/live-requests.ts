/** Requests in flight: counted, awaited and aborted at shutdown. */
export interface LiveRequest {
  /** Aborts it immediately. */
  end(): void
}

export class LiveRequests {
  readonly #live = new Set<LiveRequest>()
  readonly #pending = new Set<Promise<unknown>>()
  #idle: (() => void)[] = []

  get size(): number {
    return this.#live.size
  }

  /** Notifications to other workers that are still being sent. */
  get notices(): number {
    return this.#pending.size
  }

  add(request: LiveRequest): () => void {
    this.#live.add(request)
    return () => {
      this.#live.delete(request)
      this.#settle()
    }
  }

  /** Background work that must complete before the process exits. */
  follow(notice: Promise<unknown>): void {
    const done = () => {
      this.#pending.delete(notice)
      this.#settle()
    }
    this.#pending.add(notice)
    notice.then(done, done)
  }

  endAll(): void {
    for (const request of this.#live) request.end()
  }

  /** Resolves when nothing is in flight. */
  whenIdle(): Promise<void> {
    return new Promise(resolve => {
      this.#idle.push(resolve)
      this.#settle()
    })
  }

  #settle(): void {
    if (this.#live.size > 0 || this.#pending.size > 0) return
    for (const resolve of this.#idle.splice(0)) resolve()
  }
}
