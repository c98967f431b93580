/** What became of one request, written down as it happens: its legs, where and how long, its decisions, and how it ended. */
import type { DecisionRecord } from '../decision-log.ts'
import type { LegView, StoryView } from './wire.ts'

/** A request that is split into many parts, or tried again and again, is told in part. */
const MOST_LEGS = 64

interface Asked {
  readonly promptTokens: number
  readonly stream: boolean
  readonly maxTokens?: number | undefined
}

/** What may be shown to anybody: messages of sockets have addresses in them. */
export function shownWhy(kind: string, message: string): string {
  return kind === 'status' || kind === 'handoff' ? message : kind
}

export class Story {
  readonly request: string
  readonly decisions: DecisionRecord[] = []
  readonly #route: string
  /** Of performance.now(). */
  readonly #fromMs: number
  readonly #legs: LegStory[] = []
  #asked: Asked | undefined
  #endMs = 0
  #outcome: string | undefined
  #status: number | undefined

  constructor(request: string, route: string, fromMs: number) {
    this.request = request
    this.#route = route
    this.#fromMs = fromMs
  }

  /** What the body asked for. */
  asks({ promptTokens, stream, maxTokens }: Asked): void {
    this.#asked = { promptTokens, stream, maxTokens } // the request itself holds its body
  }

  /** Undefined when there are too many. */
  leg(leg: LegView['leg'], worker: string, attempt: number, id: string): LegStory | undefined {
    if (this.#legs.length >= MOST_LEGS) return undefined
    const told = new LegStory(this.#fromMs, leg, worker, attempt, id === this.request ? undefined : id)
    this.#legs.push(told)
    return told
  }

  decided(record: DecisionRecord): void {
    if (this.decisions.length < MOST_LEGS) this.decisions.push(record)
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
      ...(this.#asked && { promptTokens: this.#asked.promptTokens, stream: this.#asked.stream }),
      ...(this.#asked?.maxTokens !== undefined && { maxTokens: this.#asked.maxTokens }),
      legs,
      ...(firsts.length > 0 && { firstMs: Math.min(...firsts) }),
      ...(this.#outcome !== undefined && { endMs: since(this.#fromMs, this.#endMs), outcome: this.#outcome }),
      ...(this.#status !== undefined && { status: this.#status }),
    }
  }
}

/** Fields that are set as things happen: every request has two or more, and most are never read. */
export class LegStory {
  readonly #leg: LegView['leg']
  readonly #worker: string
  readonly #attempt: number
  readonly #part: string | undefined
  /** Of performance.now(), as the times below. */
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

  /** The first byte for the client. */
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
      ...(this.#part !== undefined && { part: this.#part }),
      fromMs: at(this.#fromMs),
      ...(this.#firstMs > 0 && { firstMs: at(this.#firstMs) }),
      ...(this.#outcome !== undefined && { toMs: at(this.#toMs), outcome: this.#outcome }),
      ...(this.#tokens !== undefined && { tokens: this.#tokens }),
      ...(this.#why !== undefined && { why: this.#why }),
    }
  }
}

function since(fromMs: number, atMs: number): number {
  return Math.round((atMs - fromMs) * 1000) / 1000
}
