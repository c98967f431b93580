/** Runs the parts of a request concurrently and merges their responses. The first failure stops all parts. */
import { type RefusalCode, Refusal, errorEvent } from '../../http/refusal.ts'
import type { Exchange } from '../../http/exchange.ts'
import type { Outcome } from '../../observe/request-observer.ts'
import type { ClientRequest } from '../../http/client-request.ts'
import type { Sink } from '../sink.ts'
import { EventSplitter } from './event-splitter.ts'
import { mergeResponses, mergeUsage, rewriteEvent, type Usage, usageOf } from './merge.ts'
import { type Part, split } from './split.ts'

/** Serves one part into a sink, under a request id of its own. */
export type ServePart = (part: Part, requestId: string, sink: Sink) => Promise<Outcome>

type Json = Record<string, unknown>

export async function runSplit(
  exchange: Exchange,
  request: ClientRequest,
  hidden: readonly string[],
  serve: ServePart,
): Promise<Outcome> {
  const parts = split(request)
  const answer = new MergedResponse(exchange, request, parts, hidden)
  let first: Outcome = 'ok'
  await Promise.all(
    parts.map(async (part, at) => {
      const outcome = await serve(part, `${exchange.id}-${part.index}`, answer.sinkOf(at)).catch(
        (error: unknown) => answer.failed(error),
      )
      if (outcome === 'ok') return
      // The other parts are stopped; their outcome does not matter.
      if (first === 'ok') first = outcome
      exchange.stop('part_failed')
    }),
  )
  return answer.finish(first)
}

class MergedResponse {
  readonly #exchange: Exchange
  readonly #request: ClientRequest
  readonly #parts: readonly Part[]
  /** Fields of responses that clients must not see. */
  readonly #hidden: readonly string[]
  readonly #id: string
  readonly #answers: Json[] = []
  readonly #usages: (Partial<Usage> | undefined)[] = []
  /** The error of the first part that failed. */
  #refusal: { status: number; type: string; body: Buffer } | Refusal | undefined
  #fault: { readonly error: unknown } | undefined
  #begun = false
  /** Whether the client keeps up, as of the last write. */
  #flows = true

  constructor(exchange: Exchange, request: ClientRequest, parts: readonly Part[], hidden: readonly string[]) {
    this.#hidden = hidden
    this.#exchange = exchange
    this.#request = request
    this.#parts = parts
    this.#id = `${request.api === 'chat' ? 'chatcmpl' : 'cmpl'}-${exchange.id}`
  }

  sinkOf(at: number): Sink {
    const { response } = this.#exchange
    const splitter = new EventSplitter()
    return {
      whole: (status, headers, body) => {
        if (status === 200) this.#answers[at] = this.#parse(body.toString('utf8'), 'ELDR_DECODE_FAILED')
        else this.#refusal ??= { status, type: headers['content-type'] ?? 'application/json', body }
      },
      begin: () => {
        if (this.#begun) return
        this.#begun = true
        const headers = {
          'content-type': 'text/event-stream; charset=utf-8',
          'cache-control': 'no-cache',
          'x-accel-buffering': 'no',
        }
        response.writeHead(200, { ...this.#exchange.headers, 'x-request-id': this.#exchange.id, ...headers })
      },
      write: chunk => this.#pass(at, splitter.push(chunk)),
      flush: () => this.#flows,
      drained: listener =>
        this.#exchange.whenDrained(() => {
          this.#flows = true
          listener()
        }),
      end: () => {},
      broken: refusal => void (this.#refusal ??= refusal),
    }
  }

  #pass(at: number, events: readonly string[]): void {
    for (const data of events) {
      if (data === '[DONE]') continue
      const event = this.#parse(data, 'ELDR_STREAM_BROKEN')
      this.#usages[at] = usageOf(event) ?? this.#usages[at]
      const rewritten = rewriteEvent(this.#id, this.#parts[at]!.index, event)
      if (rewritten !== undefined)
        this.#flows = this.#exchange.response.write(`data: ${JSON.stringify(rewritten)}\n\n`)
    }
  }

  /** Invalid JSON fails the request; the worker's leg has checked brackets only. */
  #parse(text: string, code: RefusalCode): Json {
    try {
      const value = JSON.parse(text) as unknown
      if (value !== null && typeof value === 'object') return value as Json
    } catch {}
    this.#refusal ??= new Refusal(code)
    return {}
  }

  failed(error: unknown): Outcome {
    if (error instanceof Refusal) this.#refusal ??= error
    else this.#fault ??= { error }
    return error instanceof Refusal && error.status === 504 ? 'timeout' : 'failed'
  }

  /** `outcome`: of the first part that failed. Throws the error for a client that has seen nothing yet. */
  finish(outcome: Outcome): Outcome {
    const exchange = this.#exchange
    const refusal = this.#refusal
    if (this.#fault !== undefined) throw this.#fault.error
    if (outcome === 'client_gone' || outcome === 'client_stalled') return outcome
    if (refusal === undefined && outcome === 'ok') {
      if (this.#request.stream) exchange.end(`${this.#usageEvent()}data: [DONE]\n\n`)
      else
        exchange.answer(
          200,
          { 'content-type': 'application/json' },
          JSON.stringify(mergeResponses(this.#id, this.#parts, this.#answers, this.#hidden)),
        )
    } else if (this.#begun) {
      const told = refusal instanceof Refusal ? refusal : new Refusal('ELDR_STREAM_BROKEN')
      exchange.told = told.code
      exchange.end(errorEvent(told))
    } else if (refusal instanceof Refusal) throw refusal
    else if (refusal !== undefined)
      exchange.answer(refusal.status, { 'content-type': refusal.type }, refusal.body)
    return refusal !== undefined && outcome === 'ok' ? 'broken' : outcome
  }

  #usageEvent(): string {
    if (!this.#request.includeUsage) return ''
    const usage = mergeUsage(this.#parts, this.#usages)
    const object = this.#request.api === 'chat' ? 'chat.completion.chunk' : 'text_completion'
    return `data: ${JSON.stringify({ id: this.#id, object, created: Math.floor(Date.now() / 1000), choices: [], usage })}\n\n`
  }
}
