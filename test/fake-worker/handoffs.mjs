// Hand-offs of one worker: those it gave when it prefills, those it read when it decodes.

export class HandoffLedger {
  /** By remote_request_id: how often it was read. @type {Map<string, number>} */
  reads = new Map()
  #given = 0
  #limit

  /** @param {number} limit ids kept, the newest */
  constructor(limit) {
    this.#limit = limit
  }

  /** Given so far: also the turn of the next counts. */
  get given() {
    return this.#given
  }

  /** A new id for a request, as vLLM makes them: its own id and eight hex digits. @param {string} id */
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
