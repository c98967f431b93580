/**
 * One hand-off from the decode worker’s side, starting when its request arrives: the lease is renewed while
 * the request waits and the blocks are read once. If they are not read, for whatever reason, the prefill
 * worker is told so.
 */
import type { KvPayload, RemoteKv } from '../types.ts'
import { KV_LIMITS, KvFailure, type KvLimits, type KvPlace, readKv, releaseKv, renewKv } from './kv-client.ts'

export interface HandoffTarget extends KvPlace {
  /** Tokens whose KV the prefill worker holds. */
  readonly tokens: number
}

export interface HandoffOptions {
  readonly promptHash: string
  /** Lease duration of the prefill worker, as far as known. */
  readonly leaseMs: number
  readonly limits?: KvLimits
  readonly onRead?: (bytes: number, ms: number) => void
  readonly onFailed?: (failure: KvFailure) => void
}

/** Heartbeats per lease duration, as in vLLM. */
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

  async fetch(stop: AbortSignal, from: number): Promise<KvPayload> {
    if (this.#state !== 'waiting') throw new Error(`cannot fetch blocks in state ${this.#state}`)
    this.#state = 'reading'
    const fromMs = performance.now()
    try {
      const payload = await readKv(
        this.#target,
        { from, tokens: this.tokens, promptHash: this.#options.promptHash },
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

  /** The request has ended. Resolves when the prefill worker has been notified, or could not be. */
  async close(): Promise<void> {
    this.#stopBeats()
    const unread = this.#state === 'waiting' || this.#state === 'reading'
    this.#state = 'closed'
    // Best effort: if the prefill worker cannot be reached, the lease expires by itself.
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
      // Blocks that are gone stay gone; the read will report it. An unreachable worker is tried again.
      if (error instanceof KvFailure && (error.kind === 'refused' || error.kind === 'stopped')) return
    }
    if (!this.#beats.signal.aborted) this.#beatIn(leaseMs / BEATS)
  }

  #stopBeats(): void {
    clearTimeout(this.#timer)
    this.#beats.abort()
  }
}
