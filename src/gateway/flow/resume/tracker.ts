/** Follows one stream over the legs of its workers, so that another worker can go on with it. */
import type { WorkerSpec } from '../../../cluster/worker.ts'
import type { Changes } from '../../json/edit.ts'
import type { ReplyHeaders } from '../../upstream/upstreams.ts'
import type { LegEnd } from '../leg.ts'
import type { StreamEvents } from '../response-rules.ts'
import { JoinedEvents, type Seam } from './joined-events.ts'
import type { Progress } from './progress.ts'
import type { ResumeTraits } from './resumable.ts'
import { TokenEvents } from './token-events.ts'

/** A worker says so if its sampling depends on seed and position alone. */
const SAMPLING_HEADER = 'x-eldr-sampling'
const BY_POSITION = 'by-position'

export interface BrokenLeg {
  readonly worker: WorkerSpec
  readonly cause: string
}

export class StreamTracker {
  /** Set while a worker goes on after another one. */
  seam: Seam | undefined
  /** The leg that broke the stream. */
  broken: BrokenLeg | undefined
  /** Fields that make a decode worker send token ids. */
  readonly fields: Changes
  readonly #progress: Progress
  readonly #traits: ResumeTraits
  readonly #sampled: boolean
  #byPosition = false
  #joined: JoinedEvents | undefined

  /** `sampled`: random numbers need not be repeated. */
  constructor(progress: Progress, traits: ResumeTraits, sampled: boolean, fields: Changes) {
    this.#progress = progress
    this.#traits = traits
    this.#sampled = sampled
    this.fields = traits.wantsIds ? {} : fields
  }

  /** The head of a leg's response. */
  head(headers: ReplyHeaders): void {
    this.#byPosition = headers[SAMPLING_HEADER] === BY_POSITION
  }

  /** Of an attempt. The client has seen nothing of one before it since the mark. */
  streamEvents(): StreamEvents {
    this.#progress.rewind()
    if (this.seam === undefined) return new TokenEvents(this.#progress, this.#traits.wantsIds)
    return (this.#joined = new JoinedEvents(this.seam))
  }

  ended(worker: WorkerSpec, end: LegEnd): void {
    if (end.kind === 'failed' && end.begun) this.broken = { worker, cause: end.failure.kind }
  }

  get diverged(): boolean {
    return this.#joined?.diverged === true
  }

  /** The same tokens would be drawn elsewhere, or need not be. */
  get repeats(): boolean {
    const { greedy, seeded } = this.#traits
    return greedy || this.#sampled || (seeded && this.#byPosition)
  }

  /** Whether a worker that seems to be lost may be given up in mid-stream. */
  movable(): boolean {
    return this.#progress.obstacle === undefined && this.repeats
  }
}
