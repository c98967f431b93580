/** Stories of requests that have ended: the last ones, and those that a watcher was shown, which stay for longer so that they can be opened. */
import type { DecisionRecord } from '../decision-log.ts'
import type { Exchange } from '../../http/exchange.ts'
import type { Story } from './story.ts'

/** Shown ones: a minute of them at the most that is shown. */
const SHOWN_KEPT = 1_200

export class Stories {
  readonly #kept: number
  readonly #last = new Map<string, Story>()
  readonly #shown = new Map<string, Story>()
  readonly #of = new WeakMap<DecisionRecord, Story>()
  readonly #running = new Map<Exchange, Story>()

  constructor(kept: number) {
    this.#kept = kept
  }

  get keeps(): boolean {
    return this.#kept > 0
  }

  started(exchange: Exchange, story: Story): void {
    this.#running.set(exchange, story)
  }

  /** The story of a running request. */
  of(exchange: Exchange): Story | undefined {
    return this.#running.get(exchange)
  }

  /** Of a decision that watchers may be shown. */
  link(record: DecisionRecord, story: Story): void {
    this.#of.set(record, story)
  }

  /** Watchers see this decision: whoever clicks on it wants the story. */
  shown(record: DecisionRecord): void {
    const story = this.#of.get(record)
    if (story !== undefined) put(this.#shown, story, SHOWN_KEPT)
  }

  ended(exchange: Exchange, story: Story): void {
    this.#running.delete(exchange)
    if (this.#kept > 0) put(this.#last, story, this.#kept)
  }

  find(request: string): Story | undefined {
    return this.#last.get(request) ?? this.#shown.get(request)
  }
}

/** Of two with the same name the later one is kept. */
function put(map: Map<string, Story>, story: Story, most: number): void {
  map.delete(story.request)
  map.set(story.request, story)
  if (map.size > most) map.delete(map.keys().next().value!)
}
