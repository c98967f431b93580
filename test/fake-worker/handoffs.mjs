// Hand-offs of one worker: given by a prefill worker, read by a decode worker.

export class HandoffLedger {
  /** Reads by remote_request_id. @type {Map<string, number>} */
  reads = new Map()
  #given = 0
  #limit

  /** @param {number} limit ids kept, the newest */
  constructor(limit) {
    this.#limit = limit
  }

  /** Number given so far; also selects the variant of the next counts. */
  get given() {
    return this.#given
  }

  /** A new id in vLLM's form: the request's own id and eight hex digits. @param {string} id */
  give(id) {
    const remoteId = `${id}-${(this.#given++).toString(16).padStart(8, '0')}`
    this.#note(remoteId, 0)
    return remoteId
  }

  /** @param {string} remoteId */
  read(remoteId) {
    this.#note(remoteId, (this.reads.get(remoteId) ?? 0) + 1)
  }

  /** @param {string} remoteId @param {number} count */
  #note(remoteId, count) {
    if (this.#limit === 0) return
    this.reads.set(remoteId, count)
    if (this.reads.size > this.#limit)
      this.reads.delete(/** @type {string} */ (this.reads.keys().next().value))
  }
}
