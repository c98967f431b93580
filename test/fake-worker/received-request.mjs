// One request as a worker got it. Headers and body are parsed when somebody looks at them.

const GENERATION = new Set(['/v1/completions', '/v1/chat/completions'])

export class ReceivedRequest {
  /** @type {Readonly<Record<string, string>> | undefined} */
  #headers
  /** @type {any} */
  #json
  #parsed = false

  /**
   * @param {{method: string, target: string, keepAlive: boolean, lines: string}} head
   * @param {Buffer} body
   */
  constructor(head, body) {
    const query = head.target.indexOf('?')
    this.method = head.method
    this.path = query < 0 ? head.target : head.target.slice(0, query)
    this.query = query < 0 ? '' : head.target.slice(query + 1)
    this.keepAlive = head.keepAlive
    this.body = body
    this.lines = head.lines
  }

  /** By name in lower case; values of a repeated name are joined by a comma. */
  get headers() {
    if (this.#headers !== undefined) return this.#headers
    /** @type {Record<string, string>} */
    const headers = Object.create(null)
    for (const line of this.lines.split('\r\n').slice(1)) {
      const colon = line.indexOf(':')
      const name = line.slice(0, colon).toLowerCase()
      const value = line.slice(colon + 1).trim()
      headers[name] = name in headers ? `${headers[name]}, ${value}` : value
    }
    this.#headers = headers
    return headers
  }

  /** The body as JSON; undefined when it is none. */
  get json() {
    if (!this.#parsed) {
      this.#parsed = true
      try {
        this.#json = JSON.parse(this.body.toString())
      } catch {
        this.#json = undefined
      }
    }
    return this.#json
  }

  /** A completion or a chat completion, right or wrong. */
  get isGeneration() {
    return this.method === 'POST' && GENERATION.has(this.path)
  }

  /** X-data-parallel-rank. What is no number is passed over, as by vLLM. */
  get dpRank() {
    const given = this.headers['x-data-parallel-rank']
    return given !== undefined && /^[+-]?\d+$/.test(given) ? Number(given) : undefined
  }

  get isChat() {
    return this.path === '/v1/chat/completions'
  }

  /** @returns {Record<string, unknown> | undefined} */
  get kv() {
    const kv = this.json?.kv_transfer_params
    return typeof kv === 'object' && kv !== null ? kv : undefined
  }

  /** Which half of a PD request this is; a request without a hand-off is a decode, as it is for vLLM. */
  get leg() {
    if (!this.isGeneration) return 'other'
    const isPrefill = this.kv?.do_remote_decode === true || this.json?.push_kv !== undefined
    return isPrefill ? 'prefill' : 'decode'
  }
}
