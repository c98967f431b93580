/**
 * Stories of running requests, of the last finished ones, and of those that a dashboard has shown. Shown
 * stories stay longer, so that they can be opened.
 */
import type { DecisionRecord } from '../decision-log.ts'
import type { Exchange } from '../../http/exchange.ts'
import type { Story } from './story.ts'

/** One minute of decisions at the highest rate that a dashboard shows. */
const MAX_SHOWN = 1_200

export class Stories {
  readonly #kept: number
  readonly #last = new Map<string, Story>()
  readonly #shown = new Map<string, Story>()
  readonly #byDecision = new WeakMap<DecisionRecord, Story>()
  readonly #running = new Map<Exchange, Story>()

  constructor(kept: number) {
    this.#kept = kept
  }

  get isEnabled(): boolean {
    return this.#kept > 0
  }

  started(exchange: Exchange, story: Story): void {
    this.#running.set(exchange, story)
  }

  runningStory(exchange: Exchange): Story | undefined {
    return this.#running.get(exchange)
  }

  /** Links a decision that dashboards may show to its story. */
  link(record: DecisionRecord, story: Story): void {
    this.#byDecision.set(record, story)
  }

  /** Keeps the story of a decision that a dashboard shows: a click on it opens the story. */
  markShown(record: DecisionRecord): void {
    const story = this.#byDecision.get(record)
    if (story !== undefined) put(this.#shown, story, MAX_SHOWN)
  }

  ended(exchange: Exchange, story: Story): void {
    this.#running.delete(exchange)
    if (this.#kept > 0) put(this.#last, story, this.#kept)
  }

  find(request: string): Story | undefined {
    return this.#last.get(request) ?? this.#shown.get(request)
  }
}

/** Replaces a story with the same id, and drops the oldest beyond `max`. */
function put(map: Map<string, Story>, story: Story, max: number): void {
  map.delete(story.request)
  map.set(story.request, story)
  if (map.size > max) map.delete(map.keys().next().value!)
}
