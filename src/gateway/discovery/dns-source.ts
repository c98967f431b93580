/** Discovery by DNS. Each name is looked up periodically; the last good result is kept while lookups fail. */
import { Resolver } from 'node:dns/promises'
import type { Role } from '../../cluster/worker.ts'
import { dnsTargetOf, type DnsTarget } from '../config/dns-target.ts'
import type { DnsDiscovery } from '../config/settings.ts'
import { BackOff, pause } from './back-off.ts'
import { type LookupResult, lookUp, type Lookups } from './dns-lookup.ts'
import { type Problem, LookupFailure, type Source, type OnReport, deduplicate } from './source.ts'

const TIMEOUT_MS = 2_000
const TRIES = 2
/**
 * Lower limit of the interval: records of a headless service have a TTL of seconds, and some servers return
 * 0.
 */
const MIN_INTERVAL_MS = 1_000
/** Intervals vary by ± this share. */
const JITTER = 0.1

interface Watched {
  readonly role: Role
  readonly target: DnsTarget
  /** The last good result. */
  result?: LookupResult
  problem?: Problem
}

export class DnsSource implements Source {
  readonly #settings: DnsDiscovery
  readonly #retryMs: number
  readonly #onReport: OnReport
  readonly #stop = new AbortController()
  readonly #resolver: Lookups & { cancel(): void }
  readonly #watched: readonly Watched[]

  constructor(settings: DnsDiscovery, retryMs: number, onReport: OnReport) {
    this.#settings = settings
    this.#retryMs = retryMs
    this.#onReport = onReport
    const resolver = new Resolver({ timeout: TIMEOUT_MS, tries: TRIES })
    if (settings.server !== undefined) resolver.setServers([settings.server])
    this.#resolver = resolver
    this.#watched = (['prefill', 'decode'] as const).flatMap(role => {
      const text = settings[role]
      return text === undefined ? [] : [{ role, target: dnsTargetOf(text) }]
    })
    for (const watched of this.#watched) void this.#follow(watched)
  }

  stop(): void {
    this.#stop.abort()
    this.#resolver.cancel()
  }

  async #follow(watched: Watched): Promise<void> {
    const { signal } = this.#stop
    const backOff = new BackOff(this.#retryMs)
    while (!signal.aborted) {
      const succeeded = await this.#look(watched)
      if (signal.aborted) return
      this.#report()
      if (succeeded) backOff.reset()
      // A failed lookup is retried soon, then at most as often as the interval.
      await pause(
        succeeded ? this.#intervalMs(watched) : Math.min(backOff.nextMs(), this.#settings.intervalMs),
        signal,
      )
    }
  }

  async #look(watched: Watched): Promise<boolean> {
    try {
      watched.result = await lookUp(this.#resolver, watched.target, this.#settings.family, watched.role)
      delete watched.problem
      return true
    } catch (error) {
      watched.problem =
        error instanceof LookupFailure
          ? error.problem
          : { reason: 'failed', text: `${watched.target.name} cannot be looked up` }
      return false
    }
  }

  #intervalMs({ result }: Watched): number {
    const intervalMs = Math.min(
      this.#settings.intervalMs,
      Math.max(MIN_INTERVAL_MS, (result?.ttlSeconds ?? Infinity) * 1000),
    )
    return intervalMs * (1 + JITTER * (2 * Math.random() - 1))
  }

  #report(): void {
    const { found, notes } = deduplicate(this.#watched.flatMap(({ result }) => result?.found ?? []))
    const problems = this.#watched.flatMap(({ problem }) => problem ?? [])
    const [first] = problems
    this.#onReport({
      // Undefined until something was found: an empty list would remove all workers.
      found: found.length > 0 ? found : undefined,
      notes: [...this.#watched.flatMap(({ result }) => result?.notes ?? []), ...notes],
      problem: first && { reason: first.reason, text: problems.map(({ text }) => text).join('; ') },
    })
  }
}
