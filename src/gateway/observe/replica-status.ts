/** State of the replicas for /ready and the metrics. Without hosts or names, because both may be public. */

export const IGNORED = ['foreign', 'malformed', 'same_id', 'too_many', 'refused'] as const
export type Ignored = (typeof IGNORED)[number]

export const IGNORED_TEXT: Readonly<Record<Ignored, string>> = {
  foreign: 'replicas: ignored a message from another application or another version of ELDR on this channel',
  malformed: 'replicas: ignored a malformed message',
  same_id: 'replicas: two gateways have the same id: give each its own replicas.id',
  too_many: 'replicas: too many replicas, ignoring the rest: does another application write to the store?',
  refused: 'replicas: the store refused a command, retrying',
}

export interface ReplicaStatus {
  readonly store: 'up' | 'down'
  /** Why the store is down. */
  readonly reason?: string
  /** Connected gateways, including this one. */
  readonly replicas: number
  /** Time since the last message of the replica that has been silent longest; 0 without others. */
  readonly viewAgeSeconds: number
  /** Version of the shared changes; 0 if there were none. */
  readonly version: number
  /** Changes made here and not yet published to the others. */
  readonly waiting: number
  /** Changes of others that could not be applied here, such as an artifact that could not be loaded. */
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

/** Only the subject of a problem is shown: the rest may contain file names. */
export function statusOf({ up, reason, others, silentMs, version, waiting, problems }: Facts): ReplicaStatus {
  return {
    store: up ? 'up' : 'down',
    reason: up ? undefined : reasonKind(reason),
    replicas: 1 + others,
    viewAgeSeconds: Math.round(silentMs) / 1000,
    version,
    waiting,
    behind: problems.map(problem => problem.split(':', 1)[0]!),
  }
}

/** Reasons contain hosts and users; /ready shows one word instead. */
function reasonKind(reason: string): string {
  if (/WRONGPASS|NOAUTH|NOPERM|AUTH/i.test(reason)) return 'refused'
  if (/no response|timeout/i.test(reason)) return 'silent'
  return reason === 'not yet' ? 'starting' : 'unreachable'
}

export interface MessageCounts {
  readonly bytesIn: number
  readonly bytesOut: number
  readonly messagesIn: number
  readonly messagesOut: number
  readonly ignoredBy: ReadonlyMap<Ignored, number>
  in(bytes: number): void
  out(bytes: number): void
  ignored(reason: Ignored): void
}

export function createMessageCounts(): MessageCounts {
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
