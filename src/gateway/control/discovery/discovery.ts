/** Runs the configured discovery sources: reconciles, logs and reports the status of each. */
import { NODE_TIMERS } from '../../../cluster/health.ts'
import type { Registry } from '../../../cluster/registry.ts'
import type { DiscoverySettings } from '../../config/settings.ts'
import type { RankDefaults } from '../../config/worker-form.ts'
import type { Log } from '../../observe/log/log.ts'
import type { Metrics } from '../../observe/metrics/metrics.ts'
import { DnsSource } from '../../discovery/dns-source.ts'
import { FileSource } from '../../discovery/file-source.ts'
import {
  type ProblemReason,
  type Report,
  type Source,
  type SourceMemory,
  type SourceName,
  type OnReport,
  withRanks,
} from '../../discovery/source.ts'
import { type KubeAccess, kubeAccess } from '../../discovery/kube-client.ts'
import { KubeSource } from '../../discovery/kube-source.ts'
import { type Change, Reconciler } from './reconciler.ts'

/** Status of a source, for the admin API. */
export interface SourceStatus {
  readonly source: SourceName
  /** True if the last lookup succeeded. */
  readonly up: boolean
  readonly workers: number
  /** Time of the last successful lookup, ISO 8601. */
  readonly lastSuccess?: string
  readonly reason?: ProblemReason
  readonly problem?: string
  /** Workers that were skipped, and why. */
  readonly notes?: readonly string[]
}

export interface DiscoveryParts {
  readonly registry: Registry
  readonly metrics: Pick<Metrics, 'discoveryChanges'>
  readonly log: Log
  readonly memoryOf?: (source: SourceName) => SourceMemory
}

const WORDS: Readonly<Record<Change, string>> = {
  added: 'worker discovered',
  drained: 'worker gone or not ready: drained',
  undrained: 'worker back: undrained',
  removed: 'worker gone: removed',
}
/** Notes shown per lookup. */
const MAX_NOTES = 20

class FollowedSource {
  readonly name: SourceName
  readonly #reconciler: Reconciler
  readonly #log: Log
  readonly #source: Source
  #lastSuccessMs: number | undefined
  #problem: Report['problem']
  #notes: readonly string[] = []
  #conflicts: readonly string[] = []
  #loggedNotes = ''

  constructor(
    name: SourceName,
    removeAfterMs: number,
    { registry, metrics, log, memoryOf }: DiscoveryParts,
    start: (onReport: OnReport) => Source,
  ) {
    this.name = name
    this.#log = log
    this.#reconciler = new Reconciler({
      source: name,
      registry,
      removeAfterMs,
      timers: NODE_TIMERS,
      memory: memoryOf?.(name),
      changed: (change, worker) => {
        metrics.discoveryChanges.inc({ source: name, change })
        log.info({ worker, source: name }, WORDS[change])
      },
      conflicts: conflicts => {
        this.#conflicts = conflicts
        this.#sayNotes()
      },
    })
    for (const change of Object.keys(WORDS)) metrics.discoveryChanges.inc({ source: name, change }, 0)
    this.#source = start(report => this.#apply(report))
  }

  get status(): SourceStatus {
    const notes = [...this.#notes, ...this.#conflicts]
    return {
      source: this.name,
      up: this.#lastSuccessMs !== undefined && this.#problem === undefined,
      workers: this.#reconciler.size,
      lastSuccess:
        this.#lastSuccessMs === undefined ? undefined : new Date(this.#lastSuccessMs).toISOString(),
      reason: this.#problem?.reason,
      problem: this.#problem?.text,
      notes: notes.length > 0 ? notes.slice(0, MAX_NOTES) : undefined,
    }
  }

  get lastSuccessMs(): number | undefined {
    return this.#lastSuccessMs
  }

  stop(): void {
    this.#source.stop()
    this.#reconciler.stop()
  }

  #apply({ found, notes = [], problem }: Report): void {
    const before = this.#problem
    this.#problem = problem
    this.#notes = notes
    if (problem === undefined) this.#lastSuccessMs = Date.now()
    // Logged only when it changes: a source may fail every second for days.
    if (problem !== undefined && problem.text !== before?.text)
      this.#log.warn(
        { source: this.name, reason: problem.reason },
        `discovery: ${problem.text}; ${this.#meanwhile(found)}`,
      )
    if (problem === undefined && before !== undefined)
      this.#log.info({ source: this.name }, 'discovery: recovered')
    if (found !== undefined) this.#reconciler.apply(found)
    else this.#sayNotes()
  }

  /** What happens after a failed lookup. One of two selectors may still have found workers. */
  #meanwhile(found: Report['found']): string {
    const isEmpty = this.#lastSuccessMs === undefined && this.#reconciler.size === 0 && !found?.length
    return isEmpty ? 'no worker found yet, retrying' : 'keeping the workers found before'
  }

  #sayNotes(): void {
    const notes = [...this.#notes, ...this.#conflicts]
    const text = notes.join('\n')
    if (text !== this.#loggedNotes && notes.length > 0)
      this.#log.warn(
        { source: this.name, notes: notes.slice(0, MAX_NOTES), count: notes.length },
        'discovery: workers skipped',
      )
    this.#loggedNotes = text
  }
}

export class Discovery {
  readonly #sources: readonly FollowedSource[]

  constructor(
    { removeAfterMs, retryMs, file, dns }: DiscoverySettings,
    ranks: RankDefaults,
    kubernetes: ReadyKubernetes | undefined,
    parts: DiscoveryParts,
  ) {
    const source = (name: SourceName, start: (onReport: OnReport) => Source) =>
      new FollowedSource(name, removeAfterMs, parts, start)
    /** A source that finds servers, which are expanded to ranks. A file sets ranks itself. */
    const servers = (name: SourceName, start: (onReport: OnReport) => Source) =>
      source(name, onReport =>
        start(report => onReport({ ...report, found: report.found && withRanks(report.found, ranks) })),
      )
    this.#sources = [
      ...(file === undefined ? [] : [source('file', onReport => new FileSource(file, ranks, onReport))]),
      ...(dns === undefined ? [] : [servers('dns', onReport => new DnsSource(dns, retryMs, onReport))]),
      ...(kubernetes === undefined
        ? []
        : [
            servers(
              'kubernetes',
              onReport => new KubeSource(kubernetes.settings, kubernetes.access, retryMs, onReport),
            ),
          ]),
    ]
  }

  statuses(): SourceStatus[] {
    return this.#sources.map(({ status }) => status)
  }

  /** For /ready: no names and no addresses. */
  summary(): Pick<SourceStatus, 'source' | 'up' | 'workers' | 'lastSuccess' | 'reason'>[] {
    return this.statuses().map(({ source, up, workers, lastSuccess, reason }) => ({
      source,
      up,
      workers,
      lastSuccess,
      reason,
    }))
  }

  /** Unix time in seconds, of sources that have succeeded at least once. */
  lastSuccessSeconds(): ReadonlyMap<SourceName, number> {
    return new Map(
      this.#sources.flatMap(({ name, lastSuccessMs }) =>
        lastSuccessMs === undefined ? [] : [[name, lastSuccessMs / 1000]],
      ),
    )
  }

  stop(): void {
    for (const source of this.#sources) source.stop()
  }
}

interface ReadyKubernetes {
  readonly settings: NonNullable<DiscoverySettings['kubernetes']>
  readonly access: KubeAccess
}

/**
 * Returns a function that starts discovery; undefined if no source is configured. Throws if settings are
 * incomplete.
 */
export function readyDiscovery(
  settings: DiscoverySettings,
  ranks: RankDefaults = {},
  env: Readonly<Record<string, string | undefined>> = process.env,
): ((parts: DiscoveryParts) => Discovery) | undefined {
  const { file, dns, kubernetes } = settings
  const ready =
    kubernetes?.enabled === true ? { settings: kubernetes, access: kubeAccess(kubernetes, env) } : undefined
  if (file === undefined && dns === undefined && ready === undefined) return undefined
  return parts => new Discovery(settings, ranks, ready, parts)
}
