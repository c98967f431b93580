/** Polls a cluster and computes the table of `eldr up` from consecutive observations. */
import { type DecodeWork, NO_WORK, PolicyLedger, sumOf, workBetween } from './decode-work.ts'
import type { MixedBatch } from './mixed-batch.ts'
import type { Observation } from './observe.ts'
import type { UpView } from './up-table.ts'

export interface WatchSettings {
  look(): Promise<Observation>
  readonly mixed: MixedBatch
  readonly speed: number
  /**
   * Typical decode time of a request in profile time: so long after a policy change, requests of the old one
   * still run.
   */
  readonly settleSeconds: number
  readonly everyMs: number
  onView(view: UpView, seconds: number): void
}

export interface Watch {
  stop(): Promise<void>
}

export function startWatch({ look, mixed, speed, settleSeconds, everyMs, onView }: WatchSettings): Watch {
  const ledger = new PolicyLedger(settleSeconds)
  const startMs = performance.now()
  let before: Observation | undefined
  let timer: NodeJS.Timeout | undefined
  let stopped = false

  async function poll(): Promise<void> {
    const now = await look()
    if (stopped) return
    const seconds = before === undefined ? 0 : (now.atMs - before.atMs) / 1000
    const works: DecodeWork[] = now.workers.map((worker, at) =>
      before === undefined ? NO_WORK : workBetween(before.workers[at]!, worker, seconds, mixed, speed),
    )
    const all = sumOf(works, seconds * speed)
    // A policy appears only once something was decoded under it.
    if (all.tokens > 0) ledger.add(now, all)
    before = now
    const workers = now.workers.map((seen, at) => ({ seen, work: works[at]! }))
    onView({ policy: now.policy, workers, policies: ledger.entries() }, (now.atMs - startMs) / 1000)
    timer = setTimeout(next, everyMs)
  }
  let polling = Promise.resolve()
  const next = () => void (polling = poll())
  next()
  return {
    stop() {
      stopped = true
      clearTimeout(timer)
      return polling
    },
  }
}
