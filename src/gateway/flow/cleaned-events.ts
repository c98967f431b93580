/** A stream without the fields that clients must not see, for engines whose events have such fields. */
import { withoutFields } from '../http/client-request.ts'
import type { StreamEvents } from './response-rules.ts'
import { EventSplitter } from './split/event-splitter.ts'
import { WholeEvents } from './whole-events.ts'

/** A larger event cannot be cleaned, so it fails the stream. */
const MAX_EVENT_BYTES = 4 << 20

export class CleanedEvents implements StreamEvents {
  readonly endsUnannounced = false
  readonly amidEvent = false
  readonly #fields: readonly string[]
  readonly #whole = new WholeEvents(MAX_EVENT_BYTES)
  readonly #splitter = new EventSplitter()

  constructor(fields: readonly string[]) {
    this.#fields = fields
  }

  get events(): number {
    return this.#whole.events
  }

  get done(): boolean {
    return this.#whole.done
  }

  get started(): boolean {
    return this.#whole.started
  }

  get failed(): boolean {
    return this.#whole.failed || this.#whole.amidEvent
  }

  push(chunk: Buffer): Buffer | undefined {
    const passed = this.#whole.push(chunk)
    if (passed === undefined || this.#whole.amidEvent) return undefined
    const events = this.#splitter.push(passed).map(data => {
      const { body } = withoutFields(Buffer.from(data), this.#fields)
      return `data: ${body.toString()}\n\n`
    })
    return events.length === 0 ? undefined : Buffer.from(events.join(''))
  }
}
