/** Where the answer of a worker goes: to the client as it is, or into the answer of a request that was split. */
import { errorEvent, type Refusal } from '../http/refusal.ts'
import { ClientStream } from '../http/client-stream.ts'
import type { Exchange } from '../http/exchange.ts'
import type { ReplyHeaders } from '../upstream/upstreams.ts'

/** Either `whole` once, or `begin`, `write`…, and `end` or `broken`. */
export interface Sink {
  /** Not streamed, or a refusal that is the client's to see. */
  whole(status: number, headers: ReplyHeaders, body: Buffer): void
  /** The first bytes of a stream are there. */
  begin(headers: ReplyHeaders): void
  /** `frame` is the chunk as it came, with its framing. It may wait for `flush`. */
  write(chunk: Buffer, frame?: Buffer): void
  /** False: write no more until `drained` has called. */
  flush(): boolean
  drained(listener: () => void): void
  end(): void
  /** A stream that has begun cannot go on. It gets an error event and no [DONE]. */
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

/** What clients get to see of a worker's headers. */
function passed(headers: ReplyHeaders): Record<string, string> {
  const names = ['content-type', 'content-encoding', 'allow'] as const
  return Object.fromEntries(
    names.flatMap(name => (headers[name] === undefined ? [] : [[name, headers[name]]])),
  )
}
