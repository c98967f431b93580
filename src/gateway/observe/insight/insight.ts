/** What the gateway remembers so that people can see what it does and why: little, in memory, the same whether or not somebody looks. */
import type { Exchange } from '../../http/exchange.ts'
import type { DecodePlacement } from '../../routing/router.ts'
import { FitWatch } from './fit-watch.ts'
import { Pace } from './pace.ts'
import { Stories } from './stories.ts'
import { Story } from './story.ts'

export class Insight {
  readonly pace = new Pace()
  readonly fit = new FitWatch()
  readonly stories: Stories
  /** Whether somebody watches now. */
  watched: () => boolean = () => false

  /** `kept`: stories of requests that have ended. */
  constructor(kept: number) {
    this.stories = new Stories(kept)
  }

  /** A request to generate something has come. */
  begun(exchange: Exchange, route: string): void {
    if (this.stories.keeps || this.watched())
      exchange.story = new Story(exchange.id, route, exchange.startedMs)
  }

  decided({ story }: Exchange, { record }: DecodePlacement): void {
    if (story === undefined || record === undefined) return
    story.decided(record)
    if (this.watched()) this.stories.link(record, story)
  }

  ended({ story, response }: Exchange, outcome: string): void {
    if (story === undefined) return
    story.ended(outcome, response.headersSent ? response.statusCode : undefined)
    this.stories.ended(story)
  }
}
