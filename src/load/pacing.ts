/**
 * When requests are sent. Open loop: each at its planned moment, whatever the server does, so that a server that stalls is asked all the
 * same and its users' waiting is counted (no coordinated omission). Closed loop: so many at a time, the next when one has ended.
 */

/** Sends request `index`, planned for `plannedMs` on the clock of performance.now(); resolves when it has ended. */
export type Send = (index: number, plannedMs: number) => Promise<void>

/** Timers of Node are whole milliseconds and may be one late; the rest of the way the event loop turns. */
const TURNING_MS = 1

export interface OpenLoop {
  readonly kind: 'open'
  /** Rising, from the start of the run, one a call; Infinity after the last. */
  readonly nextMs: () => number
}

export interface ClosedLoop {
  readonly kind: 'closed'
  readonly concurrency: number
}

export interface PacingLimits {
  readonly requests: number
  /** No request is sent later. */
  readonly durationMs: number
  readonly stop?: AbortSignal
}

/** Resolves when the last request has ended. `prepare` is called ahead of a request's moment, to do there what takes time. */
export async function pace(
  loop: OpenLoop | ClosedLoop,
  limits: PacingLimits,
  startMs: number,
  send: Send,
  prepare: (index: number) => void = () => {},
): Promise<void> {
  if (loop.kind === 'closed') return closed(loop, limits, startMs, prepare, send)
  // Those that have ended are let go: a run may have no end.
  const underWay = new Set<Promise<void>>()
  await open(loop, limits, startMs, prepare, (index, plannedMs) => {
    const sent = send(index, plannedMs).finally(() => underWay.delete(sent))
    underWay.add(sent)
  })
  await Promise.all(underWay)
}

function open(
  { nextMs }: OpenLoop,
  { requests, durationMs, stop }: PacingLimits,
  startMs: number,
  prepare: (index: number) => void,
  send: (index: number, plannedMs: number) => void,
): Promise<void> {
  return new Promise(resolve => {
    let index = 0
    let dueMs = 0
    /** False when no request is left. */
    function advance(): boolean {
      const fromStartMs = index < requests ? nextMs() : Infinity
      if (!(fromStartMs <= durationMs && fromStartMs < Infinity)) return false
      dueMs = startMs + fromStartMs
      prepare(index)
      return true
    }
    function tick(): void {
      if (stop?.aborted) return resolve()
      while (dueMs <= performance.now()) {
        send(index++, dueMs)
        if (!advance()) return resolve()
      }
      const waitMs = dueMs - performance.now()
      if (waitMs > 1 + TURNING_MS) setTimeout(tick, Math.floor(waitMs - TURNING_MS))
      else setImmediate(tick)
    }
    if (advance()) tick()
    else resolve()
  })
}

async function closed(
  { concurrency }: ClosedLoop,
  limits: PacingLimits,
  startMs: number,
  prepare: (index: number) => void,
  send: Send,
): Promise<void> {
  let next = 0
  async function lane(): Promise<void> {
    for (;;) {
      if (next >= limits.requests || performance.now() - startMs > limits.durationMs || limits.stop?.aborted)
        return
      const index = next++
      prepare(index)
      await send(index, performance.now())
    }
  }
  await Promise.all(Array.from({ length: Math.min(concurrency, limits.requests) }, lane))
}
