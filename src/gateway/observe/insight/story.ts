/** The story of one request: its legs with workers and times, its decisions and its outcome. */
import type { DecisionRecord } from '../decision-log.ts'
import type { LegView, StoryView } from './wire.ts'

/** Max legs and max decisions kept: a request may have many parts and retries. */
const MAX_LEGS = 64

interface RequestInfo {
  readonly promptTokens: number
  readonly stream: boolean
  readonly maxTokens?: number | undefined
}

/** A failure reason without addresses, which socket errors contain. */
export function publicReason(kind: string, message: string): string {
  return kind === 'status' || kind === 'handoff' ? message : kind
}

export class Story {
  readonly request: string
  readonly decisions: DecisionRecord[] = []
  readonly #route: string
  /** By performance.now(). */
  readonly #fromMs: number
  readonly #legs: LegStory[] = []
  #info: RequestInfo | undefined
  #endMs = 0
  #outcome: string | undefined
  #status: number | undefined
  #resumes: number | undefined
  #pauseMs: number | undefined
  #notResumed: string | undefined

  constructor(request: string, route: string, fromMs: number) {
    this.request = request
    this.#route = route
    this.#fromMs = fromMs
  }

  read({ promptTokens, stream, maxTokens }: RequestInfo): void {
    this.#info = { promptTokens, stream, maxTokens } // a copy, because the request itself holds its body
  }

  /** Undefined if there are too many legs. */
  leg(leg: LegView['leg'], worker: string, attempt: number, id: string): LegStory | undefined {
    if (this.#legs.length >= MAX_LEGS) return undefined
    const legStory = new LegStory(this.#fromMs, leg, worker, attempt, id === this.request ? undefined : id)
    this.#legs.push(legStory)
    return legStory
  }

  decided(record: DecisionRecord): void {
    if (this.decisions.length < MAX_LEGS) this.decisions.push(record)
  }

  resumed(pauseMs: number): void {
    this.#resumes = (this.#resumes ?? 0) + 1
    this.#pauseMs = Math.max(this.#pauseMs ?? 0, pauseMs)
  }

  notResumed(why: string): void {
    this.#notResumed ??= why
  }

  ended(outcome: string, status: number | undefined): void {
    this.#endMs = performance.now()
    this.#outcome = outcome
    this.#status = status
  }

  view(): StoryView {
    const legs = this.#legs.map(leg => leg.view())
    const firsts = legs.flatMap(({ firstMs }) => firstMs ?? [])
    return {
      request: this.request,
      route: this.#route,
      startedMs: Math.round(performance.timeOrigin + this.#fromMs),
      ...this.#info,
      legs,
      resumes: this.#resumes,
      pauseMs: this.#pauseMs === undefined ? undefined : since(0, this.#pauseMs),
      notResumed: this.#notResumed,
      firstMs: firsts.length > 0 ? Math.min(...firsts) : undefined,
      endMs: this.#outcome === undefined ? undefined : since(this.#fromMs, this.#endMs),
      outcome: this.#outcome,
      status: this.#status,
    }
  }
}

/** Plain fields: every request has two or more of these, and most are never read. */
export class LegStory {
  readonly #leg: LegView['leg']
  readonly #worker: string
  readonly #attempt: number
  readonly #part: string | undefined
  /** Start of the request. All times are those of performance.now(). */
  readonly #startMs: number
  readonly #fromMs = performance.now()
  #firstMs = 0
  #toMs = 0
  #tokens: number | undefined
  #outcome: string | undefined
  #why: string | undefined

  constructor(
    startMs: number,
    leg: LegView['leg'],
    worker: string,
    attempt: number,
    part: string | undefined,
  ) {
    this.#startMs = startMs
    this.#leg = leg
    this.#worker = worker
    this.#attempt = attempt
    this.#part = part
  }

  firstByte(): void {
    this.#firstMs = performance.now()
  }

  ended(outcome: string, tokens?: number, why?: string): void {
    this.#toMs = performance.now()
    this.#outcome = outcome
    this.#tokens = tokens
    this.#why = why
  }

  view(): LegView {
    const at = (ms: number) => since(this.#startMs, ms)
    return {
      leg: this.#leg,
      worker: this.#worker,
      attempt: this.#attempt,
      part: this.#part,
      fromMs: at(this.#fromMs),
      firstMs: this.#firstMs > 0 ? at(this.#firstMs) : undefined,
      toMs: this.#outcome === undefined ? undefined : at(this.#toMs),
      outcome: this.#outcome,
      tokens: this.#tokens,
      why: this.#why,
    }
  }
}

function since(fromMs: number, atMs: number): number {
  return Math.round((atMs - fromMs) * 1000) / 1000
}
