/**
 * How a worker's response is judged and read: one set of rules for generation, one for routes that are passed
 * through.
 */
import type { WorkerSpec } from '../../cluster/worker.ts'
import type { EngineAdapter } from '../engines/engine.ts'
import { type ReplyHeaders, UpstreamFailure } from '../upstream/upstreams.ts'
import { CleanedEvents } from './cleaned-events.ts'
import type { StreamTracker } from './resume/tracker.ts'
import { isCompressed, readWhole } from './whole-response.ts'
import type { UsageReader } from '../json/usage-reader.ts'
import { WholeEvents } from './whole-events.ts'

/** Reads a stream chunk by chunk. */
export interface StreamEvents {
  /** What may be passed on now, if anything. */
  push(chunk: Buffer): Buffer | undefined
  /** Complete events so far. */
  readonly events: number
  /** At least part of an event has arrived. */
  readonly started: boolean
  /** The stream has announced its end. */
  readonly done: boolean
  /** The worker has reported an error. */
  readonly failed: boolean
  /** What was passed on ends inside an event. */
  readonly amidEvent: boolean
  /** Whether a stream that just ends is complete. */
  readonly endsUnannounced: boolean
}

export interface ResponseRules {
  /** Judges the head: a stream, a body to collect, or why the response cannot be used. */
  accept(status: number, headers: ReplyHeaders): 'stream' | 'body' | UpstreamFailure
  streamEvents(): StreamEvents
  /** Judges a collected body. */
  readBody(status: number, headers: ReplyHeaders, body: Buffer): WholeBody | UpstreamFailure
  /** Headers of a response that has none. */
  readonly defaultHeaders?: ReplyHeaders
}

export interface WholeBody {
  readonly body: Buffer
  readonly tokens: number
}

/** Completions and chats, whose streams end with [DONE]. `wantsStream`: what the client asked for. */
export class GenerationRules implements ResponseRules {
  readonly #engine: EngineAdapter
  readonly #worker: WorkerSpec
  readonly #wantsStream: boolean
  readonly #read: { readonly tracker?: StreamTracker; readonly usage?: UsageReader }

  /** `read`: what reads the response as it passes. */
  constructor(
    engine: EngineAdapter,
    worker: WorkerSpec,
    wantsStream: boolean,
    read: { readonly tracker?: StreamTracker; readonly usage?: UsageReader } = {},
  ) {
    this.#read = read
    this.#engine = engine
    this.#worker = worker
    this.#wantsStream = wantsStream
  }

  accept(status: number, headers: ReplyHeaders): 'stream' | 'body' | UpstreamFailure {
    if (status !== 200) return 'body'
    const type = String(headers['content-type'] ?? 'none').toLowerCase()
    const streams = this.#wantsStream && type.startsWith('text/event-stream')
    if (!streams && (this.#wantsStream || !type.startsWith('application/json')))
      return new UpstreamFailure('garbage', `a response of type ${type}`)
    if (!streams) return 'body'
    this.#read.tracker?.head(headers)
    // The gateway did not ask for compression, and a stream must be inspected.
    return isCompressed(headers) ? new UpstreamFailure('garbage', 'a compressed stream') : 'stream'
  }

  streamEvents(): StreamEvents {
    const { tracker, usage } = this.#read
    const { event } = this.#engine.privateFields
    const events =
      tracker?.streamEvents() ?? (event.length === 0 ? new WholeEvents() : new CleanedEvents(event))
    if (usage === undefined) return events
    const push = events.push.bind(events)
    events.push = chunk => {
      usage.push(chunk)
      return push(chunk)
    }
    return events
  }

  readBody(status: number, headers: ReplyHeaders, body: Buffer): WholeBody | UpstreamFailure {
    if (status !== 200 && (status < 400 || status === 429 || status >= 500))
      return new UpstreamFailure('status', `status ${status}`)
    const missingRank = this.#engine.missingRank(this.#worker, status, body)
    if (missingRank !== undefined) return new UpstreamFailure('status', missingRank)
    if (status !== 200 || isCompressed(headers)) return { body, tokens: 0 }
    this.#read.usage?.push(body)
    return readWhole(body, this.#engine) ?? new UpstreamFailure('garbage', 'a response that is not JSON')
  }
}

/** Any other route: the response is passed on unchanged, and a stream may end in any way. */
export const PASS_THROUGH_RULES: ResponseRules = {
  accept(status, headers) {
    // A worker's own errors and redirects are not for clients.
    if (status < 200 || status >= 500 || status === 429 || (status >= 300 && status < 400))
      return new UpstreamFailure('status', `status ${status}`)
    return status === 200 && headers['content-type']?.startsWith('text/event-stream') ? 'stream' : 'body'
  },
  streamEvents: () => new RawBytes(),
  readBody: (_status, _headers, body) => ({ body, tokens: 0 }),
  defaultHeaders: { 'content-type': 'application/json' },
}

class RawBytes implements StreamEvents {
  readonly events = 0
  readonly done = false
  readonly failed = false
  readonly amidEvent = false
  readonly endsUnannounced = true
  started = false

  push(chunk: Buffer): Buffer {
    this.started = true
    return chunk
  }
}
