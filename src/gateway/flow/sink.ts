/**
 * Where a worker's response goes: to the client unchanged, or into the merged response of a split request.
 */
import { errorEvent, type Refusal } from '../http/refusal.ts'
import { ClientStream } from '../http/client-stream.ts'
import type { Exchange } from '../http/exchange.ts'
import type { ReplyHeaders } from '../upstream/upstreams.ts'

/** Either `whole` once, or `begin`, `write`…, and `end` or `broken`. */
export interface Sink {
  /** A non-streamed response, or an error that the client may see. */
  whole(status: number, headers: ReplyHeaders, body: Buffer): void
  /** The first bytes of a stream have arrived. */
  begin(headers: ReplyHeaders): void
  /** `frame`: the chunk with its chunked framing. Sent at the next `flush`. */
  write(chunk: Buffer, frame?: Buffer): void
  /** False: write no more until `drained` calls back. */
  flush(): boolean
  drained(listener: () => void): void
  end(): void
  /** Ends a running stream with an error event and no [DONE]. */
  broken(refusal: Refusal): void
}

export function clientSink(exchange: Exchange): Sink {
  const stream = new ClientStream(exchange)
  return {
    whole: (status, headers, body) => exchange.answer(status, passed(headers), body),
    begin: headers => stream.begin(passed(headers)),
    write: (chunk, frame) => stream.write(chunk, frame),
    flush: () => stream.flush(),
    drained: listener => stream.drained(listener),
    end: () => stream.end(),
    broken(refusal) {
      exchange.told = refusal.code
      stream.end(errorEvent(refusal))
    },
  }
}

const PASSED = ['content-type', 'content-encoding', 'allow'] as const

/** The worker's headers that clients see. */
function passed(headers: ReplyHeaders): Record<string, string> {
  const seen: Record<string, string> = {}
  for (const name of PASSED) {
    const value = headers[name]
    if (value !== undefined) seen[name] = value
  }
  return seen
}
