/** A process that is restarted on the same port when it exits, so that its URL stays valid. */
import type { ClusterEvents } from './cluster-events.ts'
import { type Child, type ChildSpec, startChild } from './child.ts'

export interface SupervisedSpec extends Omit<ChildSpec<string>, 'args' | 'onLine'> {
  /** `url`: URL of the previous process; undefined at the first start. */
  argsFor(url: string | undefined): readonly string[]
}

/** Doubled after each failed restart. */
const FIRST_PAUSE_MS = 500
const MAX_PAUSE_MS = 8_000
/** A process that ran this long resets the delay. */
const STABLE_MS = 10_000

export class Supervised {
  readonly name: string
  restarts = 0
  readonly #spec: SupervisedSpec
  readonly #events: ClusterEvents
  #child: Child<string> | undefined
  #url: string | undefined
  #isUp = false
  #stopping = false
  #pauseMs = FIRST_PAUSE_MS
  #timer: NodeJS.Timeout | undefined

  constructor(spec: SupervisedSpec, events: ClusterEvents) {
    this.name = spec.name
    this.#spec = spec
    this.#events = events
  }

  /** Known once the process has been ready. */
  get url(): string {
    if (this.#url === undefined) throw new Error(`${this.name} has not been ready`)
    return this.#url
  }

  get pid(): number | undefined {
    return this.#isUp ? this.#child?.pid : undefined
  }

  get isUp(): boolean {
    return this.#isUp
  }

  /** Resolves when it is ready; rejects if it exits before. The first start is not retried. */
  async start(): Promise<void> {
    const child = this.#spawn()
    this.#url = await child.ready
    this.#watch(child)
  }

  async stop(graceMs: number): Promise<void> {
    this.#stopping = true
    clearTimeout(this.#timer)
    await this.#child?.stop(graceMs)
  }

  #spawn(): Child<string> {
    const { name, nodeFlags, readyIn, argsFor } = this.#spec
    const onLine = (line: string) => this.#events.line(name, line)
    this.#child = startChild({ name, nodeFlags, readyIn, onLine, args: argsFor(this.#url) })
    if (this.#stopping) void this.#child.stop(0)
    return this.#child
  }

  #watch(child: Child<string>): void {
    this.#isUp = true
    const sinceMs = performance.now()
    void child.exited.then(how => {
      this.#isUp = false
      if (this.#stopping) return
      if (performance.now() - sinceMs > STABLE_MS) this.#pauseMs = FIRST_PAUSE_MS
      this.#ended(how)
    })
  }

  #ended(how: string): void {
    this.#events.ended(this.name, how, this.#pauseMs)
    this.#timer = setTimeout(() => void this.#restart(), this.#pauseMs)
    this.#pauseMs = Math.min(MAX_PAUSE_MS, this.#pauseMs * 2)
  }

  async #restart(): Promise<void> {
    const child = this.#spawn()
    try {
      await child.ready
    } catch (error) {
      if (!this.#stopping) this.#ended((error as Error).message)
      return
    }
    this.restarts++
    this.#watch(child)
    this.#events.restarted(this.name, child.pid)
  }
}
