/**
 * Decides when requests are sent. Open loop: each at its planned time, even if the server stalls, so that
 * waiting counts as latency (no coordinated omission). Closed loop: a fixed number at a time, the next when
 * one has ended.
 */

/**
 * Sends request `index`, planned for `plannedMs` on the clock of performance.now(); resolves when it has
 * ended.
 */
export type Send = (index: number, plannedMs: number) => Promise<void>

/**
 * Node's timers have millisecond resolution and may be 1 ms late; the loop spins on setImmediate for the
 * rest.
 */
const SPIN_MS = 1

export interface OpenLoop {
  readonly kind: 'open'
  /** The next planned time since the start of the run, increasing; Infinity after the last. */
  readonly nextMs: () => number
}

export interface ClosedLoop {
  readonly kind: 'closed'
  readonly concurrency: number
}

export interface PacingLimits {
  readonly requests: number
  /** No request is sent after this. */
  readonly durationMs: number
  readonly stop?: AbortSignal
}

/**
 * Resolves when the last request has ended. `prepare` runs before a request is due, to do slow work early.
 */
export async function pace(
  loop: OpenLoop | ClosedLoop,
  limits: PacingLimits,
  startMs: number,
  send: Send,
  prepare: (index: number) => void = () => {},
): Promise<void> {
  if (loop.kind === 'closed') return closed(loop, limits, startMs, prepare, send)
  // Ended requests are removed: a run may be endless.
  const inFlight = new Set<Promise<void>>()
  await open(loop, limits, startMs, prepare, (index, plannedMs) => {
    const sent = send(index, plannedMs).finally(() => inFlight.delete(sent))
    inFlight.add(sent)
  })
  await Promise.all(inFlight)
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
    /** Returns false if no request is left. */
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
      if (waitMs > 1 + SPIN_MS) setTimeout(tick, Math.floor(waitMs - SPIN_MS))
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
