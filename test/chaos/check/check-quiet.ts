/** At a quiet point no request runs: counters, tickets, leases and KV blocks are back at zero. */

/** Counts by name; each must be zero. */
export type Counts = Readonly<Record<string, number>>

export interface ProcessMemory {
  /** Same for all processes that follow each other in this place: gw1/relay-2, d1. */
  readonly name: string
  readonly pid: number
  readonly bytes: number
}

export interface Snapshot {
  readonly atMs: number
  /** By gateway or worker. */
  readonly counts: Readonly<Record<string, Counts>>
  readonly memory: readonly ProcessMemory[]
  /** Log lines that report a bug of the gateway or worker. */
  readonly bugs: readonly string[]
}

/** What each count means when it is not zero. */
const MEANINGS: readonly (readonly [RegExp, string])[] = [
  [/^(tickets|inflight|inflightElsewhere|inflightTokens)$/, 'lost release'],
  [/^(running|queued|requests|waiting|fetching)$/, 'request left over'],
  [/^leases$/, 'leaked lease'],
  [/^(blocksUsed|blocksKept|leasedBlocks)$/, 'leaked KV block'],
  [/^(ticketLeaks|doubleReleases)$/, 'ticket counted wrongly'],
]

export function quietProblems({ counts, bugs }: Snapshot): [what: string, detail: string][] {
  const left = Object.entries(counts).flatMap(([name, each]) =>
    Object.entries(each)
      .filter(([, value]) => value !== 0)
      .map(([count, value]): [string, string] => [meaningOf(count), `${name} ${count}: ${value}`]),
  )
  return [...left, ...bugs.map((line): [string, string] => ['bug in the log', line])]
}

function meaningOf(count: string): string {
  return MEANINGS.find(([pattern]) => pattern.test(count))?.[1] ?? 'left over'
}
