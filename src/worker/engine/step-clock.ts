/**
 * Waiting for the end of a step to a fraction of a millisecond. Timers of Node count whole milliseconds and come up to two late, so a
 * timer is set for a little before, and the thread sleeps the rest in the kernel: no processor time, and sockets wait for a millisecond
 * or so once a step. Spinning instead would take the cores from the other workers on the machine.
 */
export interface StepClock {
  /** Milliseconds, with fractions, that never go back. */
  now(): number
  /** Runs when the time has come, never before; at once when it has passed. One at a time. */
  at(deadlineMs: number, run: () => void): void
  /** Runs after sockets have been looked at. */
  soon(run: () => void): void
  /** Some milliseconds from now, to the precision of a timer; returns what cancels it. */
  after(delayMs: number, run: () => void): () => void
  /** What was to run at a deadline does not. */
  cancel(): void
}

/** Below this the thread sleeps. */
const SLEEP_MS = 2
/** A timer is set for this much before: they fire up to 1.1 ms late on an idle machine. */
const EARLY_MS = 1.2

export function preciseClock(): StepClock {
  const cell = new Int32Array(new SharedArrayBuffer(4)) // nobody ever wakes it
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
