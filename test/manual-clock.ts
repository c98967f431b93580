/**
 * A clock that only the test moves. While it is installed, `setTimeout`, `setInterval`, `performance.now` and
 * `AbortSignal.timeout` of this process follow it, so a timeout of the gateway fires when the test says so
 * and
 * never because the machine is busy. `Date`, `node:timers` and the timers of sockets keep real time.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { onTestFinished } from 'vitest'

interface ManualTimer {
  atMs: number
  readonly everyMs: number | undefined
  readonly run: () => void
}

/** What `setTimeout` returns: the part of Node's Timeout that the sources use. */
class Handle {
  readonly timer: ManualTimer

  constructor(timer: ManualTimer) {
    this.timer = timer
  }

  ref(): this {
    return this
  }

  unref(): this {
    return this
  }

  hasRef(): boolean {
    return true
  }
}

const REAL = {
  setTimeout: globalThis.setTimeout,
  clearTimeout: globalThis.clearTimeout,
  setInterval: globalThis.setInterval,
  clearInterval: globalThis.clearInterval,
  abortAfter: AbortSignal.timeout,
}

export class ManualClock {
  #nowMs = performance.now()
  readonly #timers = new Set<ManualTimer>()

  static install(): ManualClock {
    const clock = new ManualClock()
    const clear = (handle: unknown) => {
      if (handle instanceof Handle) clock.#timers.delete(handle.timer)
      else REAL.clearTimeout(handle as NodeJS.Timeout)
    }
    Object.assign(globalThis, {
      setTimeout: (run: (...args: unknown[]) => void, ms = 0, ...args: unknown[]) =>
        clock.#add(() => run(...args), ms),
      setInterval: (run: (...args: unknown[]) => void, ms = 0, ...args: unknown[]) =>
        clock.#add(() => run(...args), ms, Math.max(1, ms)),
      clearTimeout: clear,
      clearInterval: clear,
    })
    performance.now = () => clock.#nowMs
    AbortSignal.timeout = ms => {
      const controller = new AbortController()
      clock.#add(() => controller.abort(new DOMException('The operation timed out', 'TimeoutError')), ms)
      return controller.signal
    }
    return clock
  }

  /** Real time again. Timers that have not fired never will. */
  uninstall(): void {
    const { abortAfter, ...timers } = REAL
    Object.assign(globalThis, timers)
    AbortSignal.timeout = abortAfter
    Reflect.deleteProperty(performance, 'now')
  }

  /**
   * Moves the clock and runs the timers that are due, in order. Sockets get their turn afterwards, not in
   * between.
   */
  advance(ms: number): void {
    const untilMs = this.#nowMs + ms
    for (;;) {
      let next: ManualTimer | undefined
      for (const timer of this.#timers)
        if (timer.atMs <= untilMs && (next === undefined || timer.atMs < next.atMs)) next = timer
      if (next === undefined) break
      this.#nowMs = Math.max(this.#nowMs, next.atMs)
      if (next.everyMs === undefined) this.#timers.delete(next)
      else next.atMs += next.everyMs
      next.run()
    }
    this.#nowMs = untilMs
  }

  /**
   * Moves the clock in steps until the work is done. Each step lets at least a millisecond of real time and
   * a turn of the event loop pass, so sockets keep up, and a process that is held up loses one step and no
   * more.
   */
  async during<T>(work: Promise<T>, stepMs = 10): Promise<T> {
    const done = work.then(
      () => true,
      () => true,
    )
    const isDone = () => Promise.race([done, sleep(1, false)])
    while (!(await isDone())) this.advance(stepMs)
    return work
  }

  #add(run: () => void, ms: number, everyMs?: number): Handle {
    const timer = { atMs: this.#nowMs + Math.max(1, ms), everyMs, run } // at least 1 ms, as in Node
    this.#timers.add(timer)
    return new Handle(timer)
  }
}

/** Installs a clock until the end of the test, after its hooks. */
export function stopClock(): ManualClock {
  const clock = ManualClock.install()
  onTestFinished(() => clock.uninstall())
  return clock
}
