/** Where the answer of a worker goes: to the client as it is, or into the answer of a request that was split. */
import type { IncomingHttpHeaders } from 'node:http'
import { errorEvent, type Refusal } from './answers.ts'
import type { Exchange } from './exchange.ts'

/** Either `whole` once, or `begin`, `write`…, and `end` or `broken`. */
export interface Sink {
  /** Not streamed, or a refusal that is the client's to see. */
  whole(status: number, headers: IncomingHttpHeaders, body: Buffer): void
  /** The first bytes of a stream are there. */
  begin(headers: IncomingHttpHeaders): void
  /** False: write no more until `drained` has called. */
  write(chunk: Buffer): boolean
  drained(listener: () => void): void
  end(): void
  /** A stream that has begun cannot go on. It gets an error event and no [DONE]. */
  broken(refusal: Refusal): void
}

/** Headers of workers that clients get to see. */
const PASSED = ['content-type', 'content-encoding'] as const

export function clientSink(exchange: Exchange): Sink {
  const { response } = exchange
  const passed = (headers: IncomingHttpHeaders) =>
    Object.fromEntries(PASSED.flatMap(name => (headers[name] === undefined ? [] : [[name, headers[name]]])))
  return {
    whole: (status, headers, body) => exchange.answer(status, passed(headers), body),
    begin(headers) {
      // Proxies in front of the gateway must not collect a stream before they pass it on.
      const streaming = { 'cache-control': 'no-cache', 'x-accel-buffering': 'no' }
      response.writeHead(200, { ...exchange.headers, 'x-request-id': exchange.id, ...streaming, ...passed(headers) })
    },
    write: chunk => response.write(chunk),
    drained: listener => exchange.whenTaken(listener),
    end: () => exchange.end(),
    broken: refusal => exchange.end(errorEvent(refusal)),
  }
}
