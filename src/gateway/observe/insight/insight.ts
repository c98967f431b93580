/** Recent data in memory for the dashboard and the admin API. */
import type {
  Attempt,
  AttemptEnd,
  Decided,
  ObservedRequest,
  Outcome,
  RequestListener,
  RequestObserver,
  Resumed,
} from '../request-observer.ts'
import type { ClientRequest } from '../../http/client-request.ts'
import { FitWatch } from './fit-watch.ts'
import { Pace } from './pace.ts'
import { Stories } from './stories.ts'
import { type LegStory, publicReason, Story } from './story.ts'

export class Insight implements RequestObserver {
  readonly pace = new Pace()
  readonly fit = new FitWatch()
  readonly stories: Stories
  /** Whether a dashboard is open. */
  watched: () => boolean = () => false

  /** `kept`: how many stories of finished requests to keep. */
  constructor(kept: number) {
    this.stories = new Stories(kept)
  }

  observe(request: ObservedRequest): RequestListener | undefined {
    const { exchange, route } = request
    if (route.kind !== 'generate' || !(this.stories.isEnabled || this.watched())) return undefined
    const story = new Story(exchange.id, route.api, exchange.startedMs)
    this.stories.started(exchange, story)
    return new StoryWriter(this, story, request)
  }
}

class StoryWriter implements RequestListener {
  readonly #insight: Insight
  readonly #story: Story
  readonly #request: ObservedRequest
  /** By attempt, of which there are few. */
  readonly #legs: { readonly attempt: Attempt; readonly leg: LegStory }[] = []

  constructor(insight: Insight, story: Story, request: ObservedRequest) {
    this.#insight = insight
    this.#story = story
    this.#request = request
  }

  read(request: ClientRequest): void {
    this.#story.read(request)
  }

  decided({ placement }: Decided): void {
    const record = placement?.record
    if (record === undefined) return
    this.#story.decided(record)
    if (this.#insight.watched()) this.#insight.stories.link(record, this.#story)
  }

  attemptStarted(attempt: Attempt): void {
    const { leg, worker, number, requestId } = attempt
    if (leg === 'relay') return
    const legStory = this.#story.leg(leg, worker.id, number, requestId)
    if (legStory !== undefined) this.#legs.push({ attempt, leg: legStory })
  }

  firstByte(attempt: Attempt): void {
    this.#leg(attempt)?.firstByte()
  }

  attemptEnded(attempt: Attempt, end: AttemptEnd): void {
    const why = end.kind === 'failed' ? publicReason(end.cause, end.why) : undefined
    const hasTokens = attempt.servesClient && end.kind !== 'fault'
    this.#leg(attempt)?.ended(end.kind, hasTokens ? attempt.tokens : undefined, why)
  }

  resumed({ pauseMs }: Resumed): void {
    this.#story.resumed(pauseMs)
  }

  notResumed(why: string): void {
    this.#story.notResumed(why)
  }

  #leg(of: Attempt): LegStory | undefined {
    return this.#legs.find(({ attempt }) => attempt === of)?.leg
  }

  ended(outcome: Outcome): void {
    const { exchange } = this.#request
    const { response } = exchange
    this.#story.ended(outcome, response.headersSent ? response.statusCode : undefined)
    this.#insight.stories.ended(exchange, this.#story)
  }
}

type PaceSink = Pick<Pace, 'firstByte' | 'stream' | 'onWorker'>

/** Reports times of attempts to `pace`, which may live in another process. */
export function paceObserver(pace: PaceSink): RequestObserver {
  return {
    observe: ({ exchange, route }) =>
      route.kind === 'generate' ? new PaceReporter(pace, exchange.startedMs) : undefined,
  }
}

class PaceReporter implements RequestListener {
  readonly #pace: PaceSink
  readonly #startedMs: number

  constructor(pace: PaceSink, startedMs: number) {
    this.#pace = pace
    this.#startedMs = startedMs
  }

  firstByte({ policy, streamed, firstByteMs, resumes }: Attempt): void {
    if (policy !== undefined && streamed && !resumes)
      this.#pace.firstByte(policy, firstByteMs - this.#startedMs)
  }

  attemptEnded({ worker, policy, tokenMs, startedMs, endedMs }: Attempt, { kind }: AttemptEnd): void {
    if (kind === 'handed_off') this.#pace.onWorker(worker.id, endedMs - startedMs)
    if (policy === undefined || tokenMs === undefined) return
    this.#pace.stream(policy, tokenMs)
    this.#pace.onWorker(worker.id, tokenMs)
  }
}
