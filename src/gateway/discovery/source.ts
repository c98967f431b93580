/** Discovery sources: what they report, and helpers that all of them use. */
import type { Role } from '../../cluster/worker.ts'
import { defaultRanks, type RankDefaults, ranked } from '../config/worker-form.ts'

export type SourceName = 'file' | 'dns' | 'kubernetes'

/** Limit per source: each worker has health checks, connections and metric series. */
export const MAX_DISCOVERED = 4_096

/** A worker reported by a source. */
export interface DiscoveredWorker {
  /** Stable for the lifetime of the worker: pod name, or host and port. */
  readonly id: string
  readonly role: Role
  readonly url: string
  readonly dpRank?: number
  /** Set if the source assigns it; otherwise the reconciler does. */
  readonly cluster?: number
  /** False if it exists but must get no new requests: not ready, or terminating. */
  readonly ready: boolean
}

/** Why a lookup failed. Contains no names or addresses, so that /ready can show it. */
export type ProblemReason = 'unreadable' | 'broken' | 'empty' | 'unreachable' | 'refused' | 'failed'

export interface Problem {
  readonly reason: ProblemReason
  /** With names and addresses, for the log and the admin API. The same problem always has the same text. */
  readonly text: string
}

/** State of a source that must survive a restart of its process. */
export interface SourceMemory {
  /** Addresses of workers that an operator removed, by id. */
  readonly dismissed: Map<string, string>
  /** Indexes of decode workers, by id. */
  readonly places: Map<string, number>
}

/** Result of a lookup. Without `found`, the workers found before are kept. */
export interface Report {
  readonly found?: readonly DiscoveredWorker[]
  /** One sentence per skipped part. */
  readonly notes?: readonly string[]
  readonly problem?: Problem
}

export type OnReport = (report: Report) => void

export interface Source {
  /** No report follows. */
  stop(): void
}

/** A failed lookup. */
export class LookupFailure extends Error {
  readonly problem: Problem

  constructor(reason: ProblemReason, text: string, cause?: unknown) {
    super(text, { cause })
    this.problem = { reason, text }
  }
}

/** Expands servers to one worker per data-parallel rank, for sources that do not know ranks. */
export function withRanks(servers: readonly DiscoveredWorker[], defaults: RankDefaults): DiscoveredWorker[] {
  return servers.flatMap(server => {
    const count = defaultRanks(defaults, server.role)
    return count === 1 ? [server] : ranked(server.id, count).map(one => ({ ...server, ...one }))
  })
}

const byName = new Intl.Collator('en', { numeric: true })

/** Natural order, decode-2 before decode-10, so that all gateways agree on it. */
export function sortedById<Named extends { readonly id: string }>(found: readonly Named[]): Named[] {
  return found.toSorted((a, b) => byName.compare(a.id, b.id) || (a.id < b.id ? -1 : 1))
}

/** Keeps the first worker per id and per address. Ready workers take precedence. */
export function deduplicate(found: readonly DiscoveredWorker[]): {
  readonly found: DiscoveredWorker[]
  readonly notes: string[]
} {
  const [byId, byUrl] = [new Map<string, DiscoveredWorker>(), new Map<string, DiscoveredWorker>()]
  const notes: string[] = []
  const ready = found.filter(one => one.ready)
  for (const one of ready.length === found.length
    ? found
    : [...ready, ...found.filter(each => !each.ready)]) {
    const [named, there] = [byId.get(one.id), byUrl.get(one.url)]
    if (named !== undefined && named.role !== one.role)
      notes.push(`${one.id} is listed as both a prefill and a decode worker: used as ${named.role}`)
    else if (named !== undefined)
      notes.push(`two workers have the id ${one.id}: using the one at ${named.url}`)
    else if (there !== undefined && one.ready)
      notes.push(`${one.id} has the same address as ${there.id}, ${one.url}: skipped`)
    if (named !== undefined || there !== undefined) continue
    byId.set(one.id, one)
    byUrl.set(one.url, one)
  }
  return { found: [...byId.values()], notes }
}
