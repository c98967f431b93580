// A received request. Headers and body are parsed on demand.

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

  /** By lower-case name; repeated headers are joined with a comma. */
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

  /** The parsed body; undefined if it is not JSON. */
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

  /** True for completions and chat completions, valid or not. */
  get isGeneration() {
    return this.method === 'POST' && GENERATION.has(this.path)
  }

  /** X-data-parallel-rank. Values that are not numbers are ignored, as in vLLM. */
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

  /** The leg of a PD request; a request without a hand-off is a decode, as in vLLM. */
  get leg() {
    if (!this.isGeneration) return 'other'
    const isPrefill = this.kv?.do_remote_decode === true || this.json?.push_kv !== undefined
    return isPrefill ? 'prefill' : 'decode'
  }
}
