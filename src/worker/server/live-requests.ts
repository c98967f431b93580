/** Requests that are under way, so that a worker can wait for them, end them, and say how many there are. */
export interface LiveRequest {
  /** Ends it now, whatever it is doing. */
  end(): void
}

export class LiveRequests {
  readonly #live = new Set<LiveRequest>()
  readonly #pending = new Set<Promise<unknown>>()
  #idle: (() => void)[] = []

  get size(): number {
    return this.#live.size
  }

  /** Notices to other workers that are still on their way. */
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

  /** Something that nobody waits for, but that should not be cut off by the end of the process. */
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

  /** When nothing is under way. */
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
