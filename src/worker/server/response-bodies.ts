/**
 * Response bodies and stream events of the two generation routes, with the members in vLLM’s order. Events
 * are concatenated from strings, because there is one per token.
 */
import type { Api } from './api-request.ts'

export interface ResponseHead {
  readonly api: Api
  /** Including its prefix. */
  readonly id: string
  /** Seconds since the Unix epoch. */
  readonly created: number
  readonly model: string
}

export interface Usage {
  readonly promptTokens: number
  readonly completionTokens: number
  /** Undefined: not reported. */
  readonly cachedTokens: number | undefined
}

export type FinishReason = 'stop' | 'length'

export interface WholeResponse extends ResponseHead {
  readonly text: string
  readonly finishReason: FinishReason
  /** The stop string or token that ended the text. */
  readonly stopReason: string | number | null
  readonly usage: Usage
  readonly tokenIds: readonly number[] | null
  readonly promptTokenIds: readonly number[] | null
  readonly kvTransferParams: object | null
}

export function wholeBody(answer: WholeResponse): string {
  const {
    api,
    id,
    created,
    model,
    text,
    finishReason,
    stopReason,
    usage,
    tokenIds,
    promptTokenIds,
    kvTransferParams,
  } = answer
  const ids = { prompt_logprobs: null, prompt_token_ids: promptTokenIds }
  const ended = { logprobs: null, finish_reason: finishReason, stop_reason: stopReason, token_ids: tokenIds }
  const message = {
    role: 'assistant',
    content: text,
    refusal: null,
    annotations: null,
    audio: null,
    function_call: null,
    tool_calls: [],
    reasoning: null,
  }
  const choice = api === 'chat' ? { index: 0, message, ...ended } : { index: 0, text, ...ended, ...ids }
  return JSON.stringify({
    id,
    object: api === 'chat' ? 'chat.completion' : 'text_completion',
    created,
    model,
    choices: [choice],
    service_tier: null,
    system_fingerprint: null,
    usage: { ...usageOf(usage), prompt_tokens_details: detailsOf(usage) ?? null },
    ...(api === 'chat' && ids),
    kv_transfer_params: kvTransferParams,
  })
}

export interface StreamDelta {
  readonly text: string
  /** Undefined unless requested. */
  readonly tokenIds: readonly number[] | undefined
  readonly end:
    | { readonly finishReason: FinishReason; readonly stopReason: string | number | null }
    | undefined
  /** In every event, if requested. */
  readonly usage: Usage | undefined
}

export interface StreamTexts {
  /** The first event of a chat, with the prompt’s token ids; empty for completions. */
  opening(promptTokenIds: readonly number[] | undefined, usage: Usage | undefined): string
  delta(delta: StreamDelta, promptTokenIds?: readonly number[]): string
  usage(usage: Usage): string
}

export const DONE = 'data: [DONE]\n\n'

export function streamTexts({ api, id, created, model }: ResponseHead): StreamTexts {
  const object = api === 'chat' ? 'chat.completion.chunk' : 'text_completion'
  const start = `data: {"id":${JSON.stringify(id)},"object":"${object}","created":${created},"model":${JSON.stringify(model)},"choices":[`
  const withUsage = (usage: Usage | undefined) =>
    usage === undefined ? '' : `,"usage":${JSON.stringify(usageOf(usage))}`
  const ids = (list: readonly number[] | undefined) => (list === undefined ? 'null' : `[${list.join(',')}]`)
  return {
    opening(promptTokenIds, usage) {
      if (api !== 'chat') return ''
      const choice =
        '{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
      return `${start}${choice}],"prompt_token_ids":${ids(promptTokenIds)}${withUsage(usage)}}\n\n`
    },
    delta({ text, tokenIds, end, usage }, promptTokenIds) {
      const said =
        api === 'chat' ? `"delta":{"content":${JSON.stringify(text)}}` : `"text":${JSON.stringify(text)}`
      const reason = end === undefined ? 'null' : `"${end.finishReason}"`
      const stop =
        end !== undefined
          ? `,"stop_reason":${JSON.stringify(end.stopReason)}`
          : api === 'chat'
            ? ''
            : ',"stop_reason":null'
      const prompt = api === 'chat' ? '' : `,"prompt_token_ids":${ids(promptTokenIds)}`
      const choice = `{"index":0,${said},"logprobs":null,"finish_reason":${reason}${stop}${prompt},"token_ids":${ids(tokenIds)}}`
      return `${start}${choice}]${withUsage(usage)}}\n\n`
    },
    usage(usage) {
      return `${start}],"usage":${JSON.stringify({ ...usageOf(usage), prompt_tokens_details: detailsOf(usage) })}}\n\n`
    },
  }
}

function usageOf({ promptTokens, completionTokens }: Usage) {
  return {
    prompt_tokens: promptTokens,
    total_tokens: promptTokens + completionTokens,
    completion_tokens: completionTokens,
  }
}

function detailsOf({ cachedTokens }: Usage) {
  return cachedTokens === undefined ? undefined : { cached_tokens: cachedTokens }
}
