/** Workers as a source of discovery sees them, and what all sources do with them alike. */
import type { Role } from '../../cluster/worker.ts'
import { defaultRanks, type RankDefaults, ranked } from '../config/worker-form.ts'

export type SourceName = 'file' | 'dns' | 'kubernetes'

/** Limit per source: each worker has health checks, connections and metric series. */
export const MAX_DISCOVERED = 4_096

/** A worker that a source names. */
export interface DiscoveredWorker {
  /** Stays the same for as long as it is the same worker: name of a pod, or host and port. */
  readonly id: string
  readonly role: Role
  /** Origin. */
  readonly url: string
  readonly dpRank?: number
  /** Where the source says so; its place is kept for it otherwise. */
  readonly cluster?: number
  /** Not so: it is there and must get no new requests, since it is not ready or about to end. */
  readonly ready: boolean
}

/** Why a look failed, in a word that anybody may see. */
export type ProblemReason = 'unreadable' | 'broken' | 'empty' | 'unreachable' | 'refused' | 'failed'

export interface Problem {
  readonly reason: ProblemReason
  /** With names and addresses, for the log and for whoever may use the admin API. Always the same for the same fault. */
  readonly text: string
}

/** What is remembered of a source's workers beyond what it says; whoever must begin again with it may keep it. */
export interface SourceMemory {
  /** Addresses of those that were taken away by hand, by name. */
  readonly dismissed: Map<string, string>
  /** Indexes of decode workers, by name. */
  readonly places: Map<string, number>
}

/** What a source has to say after a look. Without `found` what was found before holds on. */
export interface Report {
  readonly found?: readonly DiscoveredWorker[]
  /** Parts that were left out, each as a sentence. */
  readonly notes?: readonly string[]
  readonly problem?: Problem
}

export type OnReport = (report: Report) => void

export interface Source {
  /** Nothing is told after it. */
  stop(): void
}

/** A look that did not succeed. */
export class LookupFailure extends Error {
  readonly problem: Problem

  constructor(reason: ProblemReason, text: string, cause?: unknown) {
    super(text, { cause })
    this.problem = { reason, text }
  }
}

/** Servers that a source knows nothing more of, each as the workers that the settings make of it. */
export function withRanks(servers: readonly DiscoveredWorker[], defaults: RankDefaults): DiscoveredWorker[] {
  return servers.flatMap(server => {
    const count = defaultRanks(defaults, server.role)
    return count === 1 ? [server] : ranked(server.id, count).map(one => ({ ...server, ...one }))
  })
}

const byName = new Intl.Collator('en', { numeric: true })

/** decode-2 before decode-10: the same workers have the same order wherever they are found. */
export function sortedById<Named extends { readonly id: string }>(found: readonly Named[]): Named[] {
  return found.toSorted((a, b) => byName.compare(a.id, b.id) || (a.id < b.id ? -1 : 1))
}

/** The first of each name and of each address; those that are ready come before those that are not. */
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
      notes.push(`${one.id} is both a prefill and a decode worker: taken for ${named.role}`)
    else if (named !== undefined)
      notes.push(`two workers are named ${one.id}: the one at ${named.url} is taken`)
    else if (there !== undefined && one.ready)
      notes.push(`${one.id} has the address of ${there.id}, ${one.url}: left out`)
    if (named !== undefined || there !== undefined) continue
    byId.set(one.id, one)
    byUrl.set(one.url, one)
  }
  return { found: [...byId.values()], notes }
}
