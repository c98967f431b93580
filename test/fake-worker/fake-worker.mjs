// A fake vLLM worker on raw sockets: implements the PD protocol, records requests, and injects faults.
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { serve } from './connection.mjs'
import { countsWriter } from './counts.mjs'
import { FaultList } from './faults.mjs'
import { HandoffLedger } from './handoffs.mjs'
import { Engine } from './streams.mjs'
import { Watched, zeros } from './watched.mjs'

/** @param {number} count @returns {import('./types.ts').RankCounters[]} */
const noRanks = count => Array.from({ length: count }, () => ({ prefill: 0, decode: 0, other: 0, active: 0 }))

export class FakeWorker extends Watched {
  /** @type {import('./received-request.mjs').ReceivedRequest[]} */
  requests = []
  faults = new FaultList()
  engineId = randomUUID()
  /** @type {import('./types.ts').RankCounters[]} */
  ranks = []
  port
  engine = new Engine(tokens => {
    this.counters.tokensSent += tokens
    this.tokens.add(0, tokens)
    this.changed()
  })
  tokens = {
    prompt: 0,
    generated: 0,
    /** @param {number} prompt @param {number} generated */
    add(prompt, generated) {
      this.prompt += prompt
      this.generated += generated
    },
  }
  /** @type {Set<ReturnType<typeof serve>>} */
  #connections = new Set()
  /** @type {import('node:net').Server | undefined} */
  #server
  #ledger
  #countsOf

  /** @param {import('./types.ts').FakeWorkerOptions} options */
  constructor({ counts, prefills, port = 0, keepAliveMs, ...options }) {
    super()
    this.port = port
    this.settings = {
      role: options.role ?? 'both',
      protocol: options.protocol ?? 'vllm',
      host: options.host ?? '127.0.0.1',
      model: options.model ?? 'fake',
      prefillMs: options.prefillMs ?? 0,
      firstTokenMs: options.firstTokenMs ?? 0,
      gapMs: options.gapMs ?? 0,
      tokenIds: options.tokenIds ?? false,
      tokens: options.tokens ?? 16,
      recordLimit: options.recordLimit ?? 10_000,
      cachedTokens: options.cachedTokens,
      keepAliveMs,
      prefills,
      ranks: options.ranks ?? 1,
    }
    this.ranks = noRanks(this.settings.ranks)
    this.#ledger = new HandoffLedger(this.settings.recordLimit)
    const write = typeof counts === 'object' ? countsWriter(counts) : undefined
    /**
     * @type {(request: import('./received-request.mjs').ReceivedRequest, prompt: number) =>
     *   string | undefined}
     */
    this.#countsOf =
      typeof counts === 'function'
        ? request => JSON.stringify(counts(/** @type {import('./types.ts').ReceivedRequest} */ (request)))
        : (_request, prompt) => write?.(this.#ledger.given, prompt)
  }

  get url() {
    return `http://${this.settings.host}:${this.port}`
  }

  /** @returns {ReadonlyMap<string, number>} */
  get handoffs() {
    return this.#ledger.reads
  }

  get listening() {
    return this.#server !== undefined
  }

  /** @param {import('./types.ts').Fault} fault @param {import('./types.ts').FaultScope} [scope] */
  fail(fault, scope) {
    this.faults.add(fault, scope)
  }

  /** @param {import('./types.ts').Fault} fault @param {import('./types.ts').FaultScope} [scope] */
  failNext(fault, scope) {
    this.faults.add(fault, { ...scope, times: 1 })
  }

  clearFaults() {
    this.faults.clear()
  }

  async accept() {
    while (this.#server === undefined) {
      const port = this.port === 0 ? reopenablePort() : this.port
      this.#server = createServer({ noDelay: true, allowHalfOpen: true }, socket => this.#connect(socket))
      this.#server.listen(port, this.settings.host, 4096)
      try {
        await once(this.#server, 'listening')
        this.port = port
      } catch (error) {
        this.#server = undefined
        if (this.port !== 0 || /** @type {NodeJS.ErrnoException} */ (error).code !== 'EADDRINUSE') throw error
      }
    }
  }

  async refuse() {
    this.#server?.close()
    this.#server = undefined
    for (const { socket, busy } of this.#connections) if (!busy) socket.end()
    // The listening socket is closed after a turn of the event loop.
    await new Promise(done => setImmediate(done))
  }

  async restart() {
    await this.close()
    this.counters = zeros()
    this.requests = []
    this.#ledger = new HandoffLedger(this.settings.recordLimit)
    this.tokens.prompt = this.tokens.generated = 0
    this.engineId = randomUUID()
    this.ranks = noRanks(this.settings.ranks)
    await this.accept()
  }

  async close() {
    const closed = [...this.#connections].map(({ socket }) => new Promise(done => socket.once('close', done)))
    for (const connection of this.#connections) connection.reset()
    await this.refuse()
    await Promise.all(closed)
  }

  // Called by connections and routes; not for tests.

  /** @param {import('./received-request.mjs').ReceivedRequest} request */
  began(request) {
    this.counters[request.leg]++
    if (request.isGeneration) this.counters.active++
    if (request.isGeneration) this.#ofRank(request, counts => (counts.active++, counts[request.leg]++))
    if (this.settings.recordLimit > 0) this.requests.push(request)
    if (this.requests.length > this.settings.recordLimit) this.requests.shift()
    this.events.emit('request', request)
    this.changed()
  }

  /**
   * @param {import('./received-request.mjs').ReceivedRequest} request
   * @param {import('./exchange.mjs').Outcome} outcome
   */
  ended(request, outcome) {
    if (request.isGeneration) this.counters.active--
    if (request.isGeneration) this.#ofRank(request, counts => counts.active--)
    this.counters[outcome]++
    if (outcome === 'aborted') this.events.emit('abort', request)
    this.events.emit('end', request)
    this.changed()
  }

  /**
   * The error of a server with several engines for an invalid rank; undefined if the rank is valid.
   * @param {import('./received-request.mjs').ReceivedRequest} request
   */
  wrongRank({ dpRank }) {
    return dpRank === undefined || (dpRank >= 0 && dpRank < this.settings.ranks)
      ? undefined
      : `data_parallel_rank ${dpRank} is out of range [0, ${this.settings.ranks}).`
  }

  /**
   * vLLM's naming of the engines of one server.
   * @param {import('./received-request.mjs').ReceivedRequest} request
   */
  engineIdOf({ dpRank }) {
    return this.settings.ranks === 1 ? this.engineId : `${this.engineId}_dp${dpRank ?? 0}`
  }

  /**
   * @param {import('./received-request.mjs').ReceivedRequest} request
   * @param {(counts: import('./types.ts').RankCounters) => void} count
   */
  #ofRank({ dpRank }, count) {
    const counts = dpRank === undefined ? undefined : this.ranks[dpRank]
    if (counts !== undefined) count(counts)
  }

  held() {
    this.counters.held++
    this.changed()
  }

  badFraming() {
    this.counters.badFraming++
    this.changed()
  }

  /** @param {string} id */
  giveHandoff(id) {
    this.counters.handoffsGiven++
    return this.#ledger.give(id)
  }

  /** Where each pushed hand-off went. @type {Map<string, string>} */
  pushed = new Map()

  /** @param {string} id @param {string} to */
  push(id, to) {
    const remoteId = this.giveHandoff(id)
    this.pushed.set(remoteId, to)
    return remoteId
  }

  /** @param {import('./received-request.mjs').ReceivedRequest} request @param {number} prompt */
  eldrText(request, prompt) {
    return this.#countsOf(request, prompt)
  }

  /**
   * False if no prefill worker holds the hand-off.
   * @param {import('./received-request.mjs').ReceivedRequest} request
   */
  readHandoff({ kv, json }) {
    if ('eldr' in json || (kv !== undefined && 'eldr' in kv)) this.counters.eldrAtDecode++
    if (this.settings.protocol === 'push') return this.#readPushed(json.pushed_kv)
    const remoteId = kv?.remote_request_id
    if (typeof remoteId !== 'string') {
      this.counters.noKv++
      return true
    }
    const { prefills } = this.settings
    const owner = prefills?.find(
      ({ engineId, handoffs }) =>
        engineId === String(kv?.remote_engine_id).replace(/_dp\d+$/, '') && handoffs.has(remoteId),
    )
    if (prefills !== undefined && owner === undefined) {
      this.counters.handoffsUnknown++
      return false
    }
    this.noteRead(remoteId)
    if (owner instanceof FakeWorker) owner.noteRead(remoteId)
    return true
  }

  /** Only the worker that a hand-off was pushed to can read it. @param {unknown} remoteId */
  #readPushed(remoteId) {
    if (typeof remoteId !== 'string') {
      this.counters.noKv++
      return true
    }
    const { prefills } = this.settings
    const owner = prefills?.find(
      prefill => prefill instanceof FakeWorker && prefill.pushed.get(remoteId) === this.url,
    )
    if (prefills !== undefined && owner === undefined) {
      this.counters.handoffsUnknown++
      return false
    }
    this.noteRead(remoteId)
    if (owner instanceof FakeWorker) owner.noteRead(remoteId)
    return true
  }

  /** @param {string} remoteId */
  noteRead(remoteId) {
    this.counters.handoffsRead++
    this.#ledger.read(remoteId)
  }

  /** @param {import('node:net').Socket} socket */
  #connect(socket) {
    this.counters.connections++
    this.events.emit('connection')
    this.changed()
    if (this.faults.takeAtAccept()) {
      socket.resetAndDestroy()
      return
    }
    const connection = serve(this, socket)
    this.#connections.add(connection)
    socket.once('close', () => this.#connections.delete(connection))
  }
}

/**
 * Any port below the ephemeral range: a worker that refuses connections for a while or restarts must find its
 * port free, and the kernel would give away an ephemeral one.
 */
function reopenablePort() {
  return 20_000 + Math.floor(Math.random() * 12_000)
}
