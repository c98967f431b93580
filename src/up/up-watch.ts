/** Follows a cluster: looks at it again and again, and makes of two looks what the table shows. */
import { type DecodeWork, NO_WORK, PolicyLedger, sumOf, workBetween } from './decode-work.ts'
import type { MixedBatch } from './mixed-batch.ts'
import type { Observation } from './observe.ts'
import type { UpView } from './up-table.ts'

export interface WatchSettings {
  look(): Promise<Observation>
  readonly mixed: MixedBatch
  readonly speed: number
  /** How long a request decodes, about, in the model's time: so long after a change of policy there are some of the one before. */
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

  async function turn(): Promise<void> {
    const now = await look()
    if (stopped) return
    const seconds = before === undefined ? 0 : (now.atMs - before.atMs) / 1000
    const works: DecodeWork[] = now.workers.map((worker, at) =>
      before === undefined ? NO_WORK : workBetween(before.workers[at]!, worker, seconds, mixed, speed),
    )
    const all = sumOf(works, seconds * speed)
    // A policy in whose time nothing was decoded has nothing to show.
    if (all.tokens > 0) ledger.add(now, all)
    before = now
    const workers = now.workers.map((seen, at) => ({ seen, work: works[at]! }))
    onView({ policy: now.policy, workers, policies: ledger.entries() }, (now.atMs - startMs) / 1000)
    timer = setTimeout(next, everyMs)
  }
  let turning = Promise.resolve()
  const next = () => void (turning = turn())
  next()
  return {
    stop() {
      stopped = true
      clearTimeout(timer)
      return turning
    },
  }
}
