/**
 * Waits for the end of a step with sub-millisecond precision. Node’s timers have a resolution of one
 * millisecond and fire up to two late, so the timer is set a little early and the thread sleeps the rest in
 * the kernel. This uses no CPU time; sockets wait about a millisecond per step. Spinning instead would take
 * cores from the other workers on the machine.
 */
export interface StepClock {
  /** Monotonic time in milliseconds, with fractions. */
  now(): number
  /** Runs at the deadline, never before; immediately if it has passed. One at a time. */
  at(deadlineMs: number, run: () => void): void
  /** Runs after pending socket events have been handled. */
  soon(run: () => void): void
  /** Runs after the given milliseconds with timer precision; returns a function that cancels it. */
  after(delayMs: number, run: () => void): () => void
  /** Cancels what was scheduled with `at`. */
  cancel(): void
}

/** For shorter waits the thread sleeps. */
const SLEEP_MS = 2
/** Timers are set this much early: they fire up to 1.1 ms late on an idle machine. */
const EARLY_MS = 1.2

export function preciseClock(): StepClock {
  const cell = new Int32Array(new SharedArrayBuffer(4)) // never notified
  let timer: NodeJS.Timeout | undefined
  let immediate: NodeJS.Immediate | undefined

  function at(deadlineMs: number, run: () => void): void {
    const leftMs = deadlineMs - performance.now()
    if (leftMs > SLEEP_MS) {
      timer = setTimeout(at, Math.max(1, Math.floor(leftMs - EARLY_MS)), deadlineMs, run)
      return
    }
    for (let restMs = leftMs; restMs > 0; restMs = deadlineMs - performance.now())
      Atomics.wait(cell, 0, 0, restMs)
    run()
  }

  return {
    now: () => performance.now(),
    at,
    soon: run => {
      immediate = setImmediate(run)
    },
    after: (delayMs, run) => {
      const pending = setTimeout(run, delayMs)
      return () => clearTimeout(pending)
    },
    cancel: () => {
      clearTimeout(timer)
      clearImmediate(immediate)
    },
  }
}
