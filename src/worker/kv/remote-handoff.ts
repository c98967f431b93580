/**
 * One hand-off as the decode worker sees it, from the moment its request arrives: the lease is renewed while the request waits, the
 * blocks are read once, and when they were not, for whatever reason, the prefill worker is told that nobody will.
 */
import type { KvPayload, RemoteKv } from '../types.ts'
import { KV_LIMITS, KvFailure, type KvLimits, type KvPlace, readKv, releaseKv, renewKv } from './kv-client.ts'

export interface HandoffTarget extends KvPlace {
  /** Tokens whose KV the prefill worker holds. */
  readonly tokens: number
}

export interface HandoffOptions {
  readonly promptHash: string
  /** Of the prefill worker, as far as is known. */
  readonly leaseMs: number
  readonly limits?: KvLimits
  readonly onRead?: (bytes: number, ms: number) => void
  readonly onFailed?: (failure: KvFailure) => void
}

/** So many heartbeats to a lease, as vLLM sends them. */
const BEATS = 6

export class RemoteHandoff implements RemoteKv {
  readonly tokens: number
  readonly #target: HandoffTarget
  readonly #options: HandoffOptions
  readonly #limits: KvLimits
  readonly #beats = new AbortController()
  #timer: NodeJS.Timeout | undefined
  #state: 'waiting' | 'reading' | 'read' | 'closed' = 'waiting'

  constructor(target: HandoffTarget, options: HandoffOptions) {
    this.tokens = target.tokens
    this.#target = target
    this.#options = options
    this.#limits = options.limits ?? KV_LIMITS
    this.#beatIn(options.leaseMs / BEATS)
  }

  async fetch(stop: AbortSignal): Promise<KvPayload> {
    if (this.#state !== 'waiting') throw new Error(`blocks are fetched when they are ${this.#state}`)
    this.#state = 'reading'
    const fromMs = performance.now()
    try {
      const payload = await readKv(
        this.#target,
        { tokens: this.tokens, promptHash: this.#options.promptHash },
        this.#limits,
        stop,
      )
      this.#state = 'read'
      this.#options.onRead?.(payload.bytes.length, performance.now() - fromMs)
      return payload
    } catch (error) {
      if (this.#state === 'reading') this.#state = 'waiting'
      if (!(error instanceof KvFailure) || error.kind === 'stopped') throw error
      this.#options.onFailed?.(error)
      throw new KvFailure(error.kind, `The KV blocks could not be loaded: ${error.message}.`)
    } finally {
      this.#stopBeats()
    }
  }

  /** The request has ended. Resolves when the prefill worker has been told, or could not be. */
  async close(): Promise<void> {
    this.#stopBeats()
    const unread = this.#state === 'waiting' || this.#state === 'reading'
    this.#state = 'closed'
    // Best effort: where nobody listens any more the lease ends by itself.
    if (unread)
      await releaseKv(this.#target, this.#limits, new AbortController().signal).catch(() => undefined)
  }

  #beatIn(ms: number): void {
    this.#timer = setTimeout(() => void this.#beat(), ms).unref()
  }

  async #beat(): Promise<void> {
    let leaseMs = this.#options.leaseMs
    try {
      leaseMs = (await renewKv(this.#target, this.#limits, this.#beats.signal)) ?? leaseMs
    } catch (error) {
      // What is gone stays gone: the read will say so. What could not be reached is tried again.
      if (error instanceof KvFailure && (error.kind === 'refused' || error.kind === 'stopped')) return
    }
    if (!this.#beats.signal.aborted) this.#beatIn(leaseMs / BEATS)
  }

  #stopBeats(): void {
    clearTimeout(this.#timer)
    this.#beats.abort()
  }
}
