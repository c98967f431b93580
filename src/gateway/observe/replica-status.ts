/**
 * How it stands with the replicas: what is counted, and what /ready and the metrics show. No names: anybody
 * may look.
 */

export const IGNORED = ['foreign', 'malformed', 'same_id', 'too_many', 'refused'] as const
export type Ignored = (typeof IGNORED)[number]

export const IGNORED_WORDS: Readonly<Record<Ignored, string>> = {
  foreign: 'replicas: ignored a message from another application or another version of ELDR on this channel',
  malformed: 'replicas: ignored a malformed message',
  same_id: 'replicas: two gateways have the same id: give each its own replicas.id',
  too_many:
    'replicas: more replicas than supported, ignoring the rest: does another client write to the store?',
  refused: 'replicas: the store refused a command, retrying',
}

export interface ReplicaStatus {
  readonly store: 'up' | 'down'
  /** Why it is down. */
  readonly reason?: string
  /** Gateways that know of each other, this one included. */
  readonly replicas: number
  /** Since the one was heard that has been silent longest; 0 without others. */
  readonly viewAgeSeconds: number
  /** Of the shared changes; 0 when nothing was changed. */
  readonly version: number
  /** Changes made here that the others do not know of yet. */
  readonly waiting: number
  /** Things that others changed and that cannot be done here, such as an artifact that cannot be had. */
  readonly behind: readonly string[]
}

interface Facts {
  readonly up: boolean
  readonly reason: string
  readonly others: number
  readonly silentMs: number
  readonly version: number
  readonly waiting: number
  readonly problems: readonly string[]
}

/** Of a problem only what it is about is shown: the rest may name files. */
export function statusOf({ up, reason, others, silentMs, version, waiting, problems }: Facts): ReplicaStatus {
  return {
    store: up ? 'up' : 'down',
    ...(!up && { reason: kindOf(reason) }),
    replicas: 1 + others,
    viewAgeSeconds: Math.round(silentMs) / 1000,
    version,
    waiting,
    behind: problems.map(problem => problem.split(':', 1)[0]!),
  }
}

/** Reasons name hosts and users; outside they are one word. */
function kindOf(reason: string): string {
  if (/WRONGPASS|NOAUTH|NOPERM|AUTH/i.test(reason)) return 'refused'
  if (/no response|timeout/i.test(reason)) return 'silent'
  return reason === 'not yet' ? 'starting' : 'unreachable'
}

export interface Tally {
  readonly bytesIn: number
  readonly bytesOut: number
  readonly messagesIn: number
  readonly messagesOut: number
  readonly ignoredBy: ReadonlyMap<Ignored, number>
  in(bytes: number): void
  out(bytes: number): void
  ignored(reason: Ignored): void
}

export function newTally(): Tally {
  const counts = { bytesIn: 0, bytesOut: 0, messagesIn: 0, messagesOut: 0 }
  const ignoredBy = new Map<Ignored, number>(IGNORED.map(reason => [reason, 0]))
  return {
    get bytesIn() {
      return counts.bytesIn
    },
    get bytesOut() {
      return counts.bytesOut
    },
    get messagesIn() {
      return counts.messagesIn
    },
    get messagesOut() {
      return counts.messagesOut
    },
    ignoredBy,
    in(bytes) {
      counts.bytesIn += bytes
      counts.messagesIn++
    },
    out(bytes) {
      counts.bytesOut += bytes
      counts.messagesOut++
    },
    ignored: reason => void ignoredBy.set(reason, ignoredBy.get(reason)! + 1),
  }
}
