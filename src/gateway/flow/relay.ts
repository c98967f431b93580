/**
 * One request to one worker whose answer is passed on as it is, whatever API it belongs to: nothing is known of how its streams end.
 * Until something of a good answer has come the client has seen nothing, and another worker can be asked.
 */
import type { LegPlan } from './leg-plan.ts'
import type { Sink } from './sink.ts'
import {
  type ReplyHeaders,
  UpstreamFailure,
  type UpstreamRequest,
  type Upstreams,
} from '../upstream/upstreams.ts'

export type RelayEnd =
  | { readonly kind: 'served'; readonly status: number }
  /** `begun`: the sink waits to hear how it ends. */
  | {
      readonly kind: 'failed'
      readonly failure: UpstreamFailure
      readonly status: number
      readonly begun: boolean
    }
  | { readonly kind: 'stopped'; readonly begun: boolean }

const MOST_WHOLE_BYTES = 64 << 20

/** Rejects only when something threw that should not. */
export function relay(
  upstreams: Upstreams,
  origin: string,
  request: UpstreamRequest,
  sink: Sink,
  { stop, lost, limits }: Pick<LegPlan, 'stop' | 'lost' | 'limits'>,
): Promise<RelayEnd> {
  return new Promise((resolve, reject) => {
    let status = 0
    let headers: ReplyHeaders = {}
    let streaming = false
    let begun = false
    let held = false
    let ended = false
    let stopped = false
    let bytes = 0
    const chunks: Buffer[] = []
    let timer = setTimeout(
      () => fail('timeout', `no answer within ${limits.firstByteMs} ms`),
      limits.firstByteMs,
    )
    const call = upstreams.open(origin, request, {
      onStart(code, head) {
        status = code
        headers = { 'content-type': 'application/json', ...head }
        streaming = code === 200 && headers['content-type']!.startsWith('text/event-stream')
        // What a worker says of its own troubles, and where it would send a client, is not for clients.
        if (code < 200 || code >= 500 || code === 429 || (code >= 300 && code < 400))
          fail('status', `status ${code}`)
      },
      onData(chunk, frame) {
        if (streaming) return pass(chunk, frame)
        bytes += chunk.length
        if (bytes > MOST_WHOLE_BYTES) fail('too_large', `an answer of more than ${MOST_WHOLE_BYTES} bytes`)
        else chunks.push(chunk)
      },
      onPause() {
        if (begun && !sink.flush() && !held) hold()
      },
      onEnd() {
        settle()
        if (streaming && !begun)
          return resolve({
            kind: 'failed',
            failure: new UpstreamFailure('early_end', 'an empty stream'),
            status,
            begun,
          })
        if (streaming) sink.end()
        else sink.whole(status, headers, Buffer.concat(chunks))
        return resolve({ kind: 'served', status })
      },
      onFailure(failure) {
        settle()
        if (failure.kind === 'fault') reject(failure.cause)
        else resolve(stopped ? { kind: 'stopped', begun } : { kind: 'failed', failure, status, begun })
      },
    })
    const unhooks = [
      stop.onStop(reason => {
        stopped = true
        call.abort(reason)
      }),
      lost.onStop(reason => {
        if (!begun) call.lose(reason)
      }),
    ]

    function pass(chunk: Buffer, frame: Buffer | undefined): void {
      if (!begun) sink.begin(headers)
      begun = true
      sink.write(chunk, frame)
      if (!held) waitForByte()
    }

    /** The client is slower than the worker; whether it takes anything at all is watched by its exchange. */
    function hold(): void {
      held = true
      call.pause()
      clearTimeout(timer)
      sink.drained(() => {
        if (ended) return
        held = false
        waitForByte()
        call.resume()
      })
    }

    function waitForByte(): void {
      clearTimeout(timer)
      timer = setTimeout(
        () => fail('timeout', `no byte for ${limits.betweenTokensMs} ms`),
        limits.betweenTokensMs,
      )
    }

    function fail(kind: UpstreamFailure['kind'], words: string): void {
      call.abort(new UpstreamFailure(kind, words))
    }

    function settle(): void {
      ended = true
      clearTimeout(timer)
      for (const unhook of unhooks) unhook()
    }
  })
}
