/** Reports each response that a decode worker has completed, for measurements over all processes. */
import type { EndedStream } from '../../math/switchback.ts'
import type { Attempt, AttemptEnd, RequestListener, RequestObserver } from './request-observer.ts'

export type EndedStreams = (stream: EndedStream) => void

export function endedStreams(ended: EndedStreams): RequestObserver {
  return {
    observe: ({ exchange, route }) =>
      route.kind === 'generate' ? new EndReporter(ended, exchange.startedMs) : undefined,
  }
}

class EndReporter implements RequestListener {
  readonly #ended: EndedStreams
  readonly #startedMs: number

  constructor(ended: EndedStreams, startedMs: number) {
    this.#ended = ended
    this.#startedMs = startedMs
  }

  attemptEnded(
    { leg, streamed, firstByteMs, endedMs, tokenMs, tokens }: Attempt,
    { kind }: AttemptEnd,
  ): void {
    if (leg !== 'decode' || kind !== 'served') return
    this.#ended({
      ageMs: endedMs - this.#startedMs,
      ttftMs: streamed ? firstByteMs - this.#startedMs : undefined,
      tpotMs: tokenMs,
      tokens,
    })
  }
}
