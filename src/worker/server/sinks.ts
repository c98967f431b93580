/** The two forms of a response: one JSON body at the end, or a stream of events. */
import type { ServerResponse } from 'node:http'
import { type ResponseHead, DONE, streamTexts, type Usage, wholeBody } from './response-bodies.ts'
import { type ApiError, errorBody } from './api-error.ts'
import type { ApiRequest } from './api-request.ts'
import { EventWriter } from './event-writer.ts'
import type { ResponseSink, RunEnd } from './generation-run.ts'
import { sendError, sendJson } from './send.ts'

export interface SinkOptions {
  readonly head: ResponseHead
  readonly asked: Pick<ApiRequest, 'returnTokenIds' | 'includeUsage' | 'continuousUsage'>
  readonly promptIds: Int32Array
  readonly response: ServerResponse
  /** From the prefix cache of either leg; undefined if not reported. */
  readonly cachedTokens: (end: RunEnd) => number | undefined
}

export function wholeSink(
  options: SinkOptions & { readonly kvTransferParams: (end: RunEnd) => object | null },
): ResponseSink {
  const { head, asked, promptIds, response, cachedTokens, kvTransferParams } = options
  const ids: number[] = []
  let text = ''
  return {
    token(id, piece) {
      if (asked.returnTokenIds) ids.push(id)
      text += piece
    },
    finish(end) {
      const { last, finished, finishReason, stopReason } = end
      const usage = {
        promptTokens: promptIds.length,
        completionTokens: finished.completionTokens,
        cachedTokens: cachedTokens(end),
      }
      const body = wholeBody({
        ...head,
        text: text + last.text,
        finishReason,
        stopReason,
        usage,
        tokenIds: asked.returnTokenIds ? [...ids, ...last.ids] : null,
        promptTokenIds: asked.returnTokenIds ? [...promptIds] : null,
        kvTransferParams: kvTransferParams(end),
      })
      sendJson(response, 200, body)
    },
    fail: error => sendError(response, error),
  }
}

interface Piece {
  text: string
  readonly ids: number[]
  end: Pick<RunEnd, 'finishReason' | 'stopReason'> | undefined
}

/** In place: a client that is far behind may have very many pending. */
function joined(first: Piece, { text, ids, end }: Piece): Piece {
  first.text += text
  first.ids.push(...ids)
  first.end = end
  return first
}

export function streamSink(
  options: SinkOptions & { readonly stallMs: number; readonly onStalled: () => void },
): ResponseSink {
  const { head, asked, promptIds, response, cachedTokens, stallMs, onStalled } = options
  const texts = streamTexts(head)
  const promptTokens = promptIds.length
  let sent = 0
  let opened = false

  const usageNow = (): Usage | undefined =>
    asked.continuousUsage ? { promptTokens, completionTokens: sent, cachedTokens: undefined } : undefined

  /** A chat starts with an event without a token, sent in the same write as the first token. */
  function print({ text, ids, end }: Piece): string {
    const promptTokenIds = asked.returnTokenIds && !opened ? [...promptIds] : undefined
    const opening = opened ? '' : texts.opening(promptTokenIds, usageNow())
    opened = true
    sent += ids.length
    const delta = { text, tokenIds: asked.returnTokenIds ? ids : undefined, end, usage: usageNow() }
    return opening + texts.delta(delta, promptTokenIds)
  }

  // As in vLLM, the head is sent before the engine does anything, so that the client knows that the request
  // was accepted.
  response.writeHead(200, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache',
    // Sampling depends on seed and position alone: another worker can go on with the same text.
    'x-eldr-sampling': 'by-position',
  })
  response.flushHeaders()
  const writer = new EventWriter<Piece>({ response, stallMs, onStalled, merge: joined, print })
  return {
    token: (id, text) => writer.write({ text, ids: [id], end: undefined }),
    finish(end) {
      const { last, finished, finishReason, stopReason } = end
      writer.write({ text: last.text, ids: [...last.ids], end: { finishReason, stopReason } })
      const usage = {
        promptTokens,
        completionTokens: finished.completionTokens,
        cachedTokens: cachedTokens(end),
      }
      writer.end((asked.includeUsage ? texts.usage(usage) : '') + DONE)
    },
    fail: (error: ApiError) => writer.end(`data: ${errorBody(error)}\n\n${DONE}`),
  }
}
