/**
 * Holds after every step what must hold, whatever the adversary does. It knows the faults but not their
 * plan, and sees only what clients and operators see.
 */
import { type Fault, type KnownAnswer, nowMs, type Observation, type Violation } from '../observation.ts'
import type { AdminLedger, AdminView } from './admin-ledger.ts'
import { answerProblems } from './check-answer.ts'
import { endProblems } from './check-end.ts'
import { isHit } from './check-hit.ts'
import { memoryProblems, memorySlopes, type Slope } from './check-memory.ts'
import { quietProblems, type Snapshot } from './check-quiet.ts'
import { resumeProblems, type Topology } from './check-resumed.ts'

export interface CheckerOptions {
  readonly known: readonly KnownAnswer[]
  readonly limitMs: number
  readonly topology: Topology
  readonly ledger: AdminLedger
  /** Demand that a broken stream goes on elsewhere. */
  readonly complete: boolean
}

/** A request that has not ended. */
export interface Running {
  readonly id: number
  readonly gateway: string
  readonly startMs: number
}

export class Checker {
  readonly violations: Violation[] = []
  readonly faults: Fault[] = []
  readonly tally = { requests: 0, streams: 0, hit: 0, whole: 0, left: 0, resumed: 0 }
  /** Number of requests by code or kind of connection failure. */
  readonly failures = new Map<string, number>()
  /** Longest pause of each stream that was hit and still completed. */
  readonly pausesMs: number[] = []
  slopes: readonly Slope[] = []
  readonly #options: CheckerOptions
  readonly #ended = new Set<number>()
  readonly #snapshots: Snapshot[] = []

  constructor(options: CheckerOptions) {
    this.#options = options
  }

  /** Judges requests that have ended. */
  ended(observations: readonly Observation[]): void {
    for (const seen of observations) this.#judge(seen)
  }

  /** Judges requests that have not: one beyond every limit hangs, whether or not its client noticed. */
  running(requests: readonly Running[]): void {
    const { limitMs } = this.#options
    for (const { id, gateway, startMs } of requests)
      if (nowMs() - startMs > 3 * limitMs)
        this.#report(
          [['hang', `request ${id} at ${gateway} runs for ${(nowMs() - startMs).toFixed(0)} ms`]],
          nowMs(),
        )
  }

  /** What is wrong at a quiet point now. The caller waits a limited time until it is empty. */
  quietProblems(snapshot: Snapshot, admin: AdminView): [what: string, detail: string][] {
    return [...quietProblems(snapshot), ...this.#options.ledger.problems(admin)]
  }

  /** Records a quiet point with the problems that stayed. */
  quiet(snapshot: Snapshot, problems: readonly [what: string, detail: string][]): void {
    this.#report(problems, snapshot.atMs)
    this.#snapshots.push(snapshot)
    this.slopes = memorySlopes(this.#snapshots)
  }

  /** A healed cluster must serve every request. */
  probes(observations: readonly Observation[]): void {
    for (const seen of observations) {
      const failed = seen.codes[0] ?? (seen.end === 'ended' ? undefined : seen.end)
      if (failed !== undefined)
        this.#report([['not served after recovery', `${seen.gateway}: ${failed}`]], seen.endMs)
    }
    this.ended(observations)
  }

  /** Judgements over the whole run. */
  finish(minHitShare: number): void {
    this.#report(memoryProblems(this.slopes), nowMs())
    const { streams, hit } = this.tally
    if (streams > 0 && hit < minHitShare * streams)
      this.#report([['too few streams hit', `${hit} of ${streams}`]], nowMs())
  }

  /** A problem that was found elsewhere, such as a broken client that got a wrong status. */
  report(what: string, detail: string): void {
    this.#report([[what, detail]], nowMs())
  }

  #judge(seen: Observation): void {
    const { known, limitMs, topology, complete } = this.#options
    if (this.#ended.has(seen.id)) this.#report([['ended twice', `request ${seen.id}`]], seen.endMs)
    this.#ended.add(seen.id)
    const ask = known[seen.ask]!
    const problems = [
      ...endProblems(seen, this.faults, { limitMs }),
      ...answerProblems(seen, ask),
      ...(complete ? resumeProblems(seen, this.faults, topology) : []),
    ]
    this.#report(
      problems.map(([what, detail]) => [
        what,
        `${detail} (${ask.name}, ${seen.gateway}, ${seen.worker ?? 'no worker'})`,
      ]),
      seen.endMs,
    )
    this.#count(seen)
  }

  #count(seen: Observation): void {
    const { tally } = this
    tally.requests++
    tally.resumed += seen.resumed
    const hit = isHit(seen, this.faults)
    const isWhole = seen.end === 'ended' && seen.codes.length === 0
    if (seen.stream && seen.firstMs !== undefined) tally.streams++
    if (hit) tally.hit++
    if (isWhole) tally.whole++
    else if (seen.end === 'left') tally.left++
    else {
      const cause = seen.codes[0] ?? `connection ${seen.end}`
      this.failures.set(cause, (this.failures.get(cause) ?? 0) + 1)
    }
    if (hit && isWhole) this.pausesMs.push(seen.pauseMs)
  }

  #report(problems: readonly (readonly [what: string, detail: string])[], atMs: number): void {
    for (const [what, detail] of problems) this.violations.push({ what, detail, atMs })
  }
}
