// Random clients: chats and completions, streamed or whole, one choice or several; some leave at any moment,
// some send invalid requests. Each must end with a defined outcome.
import { Agent, request } from 'node:http'

/**
 * How a request ended: `ok`; `refused` (4xx); `failed` (5xx); `broken` (a stream that ended with an error
 * event); `cut` (a stream that ended without one); `lost` (no response); `left` (the client left on purpose).
 * @typedef {'ok' | 'refused' | 'failed' | 'broken' | 'cut' | 'lost' | 'left'} End
 */
export const ENDS = /** @type {const} */ (['ok', 'refused', 'failed', 'broken', 'cut', 'lost', 'left'])

const CANCELLED = 0.1
const BAD = 0.01
const TEXT = 'Which worker will read this, and which will answer? '.repeat(200)

/** Seeded random numbers in [0, 1) (mulberry32). @param {number} seed */
export function createRandom(seed) {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}

export class Mix {
  /**
   * Requests in flight with their description, to report those that never end.
   * @type {Map<number, string>}
   */
  pending = new Map()
  /** Details of requests without a response. @type {object[]} */
  lost = []
  #url
  #random
  // Idle connections are closed before the gateway closes them: a request sent at that moment would be lost.
  #agent = new Agent({ keepAlive: true, maxSockets: Infinity, timeout: 4_000 })
  #number = 0

  /** @param {string} url @param {() => number} random */
  constructor(url, random) {
    this.#url = url
    this.#random = random
  }

  /**
   * One request from start to end.
   * @returns {Promise<{end: End, wanted: boolean, firstMs: number | undefined}>}
   */
  async send() {
    const number = this.#number++
    const plan = this.#random() < BAD ? this.#bad() : this.#good()
    this.pending.set(number, JSON.stringify({ ...plan, body: plan.body.slice(0, 80) }))
    const { end, status, firstMs } = await this.#run(plan)
    this.pending.delete(number)
    return {
      end,
      firstMs,
      wanted: plan.status === undefined ? end !== 'refused' : end === 'left' || status === plan.status,
    }
  }

  close() {
    this.#agent.destroy()
  }

  #good() {
    const random = this.#random
    const chat = random() < 0.6
    const text = TEXT.slice(0, 50 + Math.floor(random() ** 3 * 8_000))
    const body = {
      model: 'fake',
      ...(chat
        ? { messages: [{ role: 'user', content: text }] }
        : { prompt: random() < 0.05 ? [text, text] : text }),
      max_tokens: random() < 0.03 ? 1 : 8 + Math.floor(random() * 56),
      stream: random() < 0.7,
      ...(random() < 0.05 && { n: 2 }),
    }
    const cancel = random() < CANCELLED ? this.#moment(body.max_tokens) : undefined
    return { path: chat ? '/v1/chat/completions' : '/v1/completions', body: JSON.stringify(body), cancel }
  }

  /** When a client leaves: before the first byte, or after this many bytes. @param {number} tokens */
  #moment(tokens) {
    return this.#random() < 0.5
      ? { afterMs: this.#random() ** 2 * 300 }
      : { afterBytes: Math.floor(this.#random() * tokens * 200) }
  }

  #bad() {
    const kinds = [
      { path: '/v1/completions', body: '{"prompt":"never closed', status: 400 },
      { path: '/v1/chat/completions', body: '{"messages":[],"n":"many"}', status: 400 },
      { path: '/v1/completions', body: `{"prompt":"${'x'.repeat(300_000)}"}`, status: 413 },
      { path: '/v1/embeddings', body: '{"input":"a"}', status: 404 },
      { path: '/nothing', body: '{}', status: 404 },
      {
        path: '/v1/completions',
        body: '{"prompt":"breaks off',
        status: 400,
        cancel: { afterMs: 20 },
        missingBytes: 100,
      },
    ]
    return kinds[Math.floor(this.#random() * kinds.length)]
  }

  /** @returns {Promise<{end: End, status?: number, firstMs?: number}>} */
  #run({ path, body, cancel, missingBytes = 0 }) {
    const startMs = performance.now()
    const headers = {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body) + missingBytes,
    }
    return new Promise(resolve => {
      let left = false
      let status
      let firstMs
      let bytes = 0
      let tail = ''
      let timer
      const call = request(`${this.#url}${path}`, { method: 'POST', agent: this.#agent, headers })
      const settle = end => {
        clearTimeout(timer)
        resolve({ end: left ? 'left' : end, status, firstMs })
      }
      const leave = () => {
        left = true
        call.destroy()
      }
      if (cancel?.afterMs !== undefined) timer = setTimeout(leave, cancel.afterMs)
      call.on('error', ({ code }) => {
        if (status === undefined && !left)
          this.lost.push({
            path,
            code,
            reused: call.reusedSocket,
            ms: Math.round(performance.now() - startMs),
            bytes: body.length,
          })
        settle(status === undefined ? 'lost' : 'cut')
      })
      call.on('close', () => settle('lost'))
      call.on('response', response => {
        status = response.statusCode
        const streamed = response.headers['content-type']?.startsWith('text/event-stream')
        response.on('data', chunk => {
          firstMs ??= performance.now() - startMs
          bytes += chunk.length
          tail = (tail + chunk.toString('latin1')).slice(-400)
          if (bytes > cancel?.afterBytes) leave()
        })
        response.on('error', () => settle('cut'))
        response.on('end', () =>
          settle(status >= 500 ? 'failed' : status >= 400 ? 'refused' : endOf(streamed, tail)),
        )
      })
      if (missingBytes > 0) call.write(body)
      else call.end(body)
    })
  }
}

/** @param {boolean | undefined} streamed @param {string} tail @returns {End} */
function endOf(streamed, tail) {
  if (!streamed) return tail.endsWith('}') ? 'ok' : 'cut'
  if (tail.includes('"error":{')) return 'broken'
  return tail.includes('data: [DONE]') ? 'ok' : 'cut'
}
