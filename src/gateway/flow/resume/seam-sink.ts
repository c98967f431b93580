/** The client's stream while workers take turns: it begins once, and a break waits for what follows. */
import type { Refusal } from '../../http/refusal.ts'
import type { ReplyHeaders } from '../../upstream/upstreams.ts'
import type { Sink } from '../sink.ts'

export class SeamSink implements Sink {
  /** What the client is told if the stream is not resumed. */
  failure: Refusal | undefined
  /** A worker refused to go on. */
  refused = false
  /** Called when the stream goes on. */
  onResumed = () => {}
  readonly #sink: Sink
  #begun = false

  constructor(sink: Sink) {
    this.#sink = sink
  }

  get begun(): boolean {
    return this.#begun
  }

  whole(status: number, headers: ReplyHeaders, body: Buffer): void {
    if (this.#begun) this.refused = true
    else this.#sink.whole(status, headers, body)
  }

  begin(headers: ReplyHeaders): void {
    if (this.#begun) return this.onResumed()
    this.#begun = true
    return this.#sink.begin(headers)
  }

  write(chunk: Buffer, frame?: Buffer): void {
    this.#sink.write(chunk, frame)
  }

  flush(): boolean {
    return this.#sink.flush()
  }

  drained(listener: () => void): void {
    this.#sink.drained(listener)
  }

  end(): void {
    this.#sink.end()
  }

  /** The client gets what the worker sent before it failed. */
  broken(refusal: Refusal): void {
    this.failure = refusal
    this.#sink.flush()
  }

  /** Ends the stream with an error. */
  tell(refusal: Refusal): void {
    this.#sink.broken(refusal)
  }
}
