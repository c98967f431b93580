/** A process that is started anew when it ends by itself: where it was before, so that whoever knows its address finds it again. */
import type { ClusterEvents } from './cluster-events.ts'
import { type Child, type ChildSpec, startChild } from './child.ts'

export interface SupervisedSpec extends Omit<ChildSpec<string>, 'args' | 'onLine'> {
  /** `url`: where it listened before; undefined the first time. */
  argsFor(url: string | undefined): readonly string[]
}

/** Doubled each time that it does not hold. */
const FIRST_PAUSE_MS = 500
const LONGEST_PAUSE_MS = 8_000
/** One that ran so long was well. */
const HELD_MS = 10_000

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

  /** Where it listens; known once it has been ready. */
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

  /** Resolves when it is ready; rejects when it ended before: the first start is not tried again. */
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
      if (performance.now() - sinceMs > HELD_MS) this.#pauseMs = FIRST_PAUSE_MS
      this.#ended(how)
    })
  }

  #ended(how: string): void {
    this.#events.ended(this.name, how, this.#pauseMs)
    this.#timer = setTimeout(() => void this.#again(), this.#pauseMs)
    this.#pauseMs = Math.min(LONGEST_PAUSE_MS, this.#pauseMs * 2)
  }

  async #again(): Promise<void> {
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
