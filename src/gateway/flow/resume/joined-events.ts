/**
 * The stream of a worker that goes on after another one: its events as the client would have seen them from
 * the first. Tokens that the client has already are compared and dropped.
 */
import { EventSplitter } from '../split/event-splitter.ts'
import type { StreamEvents } from '../response-rules.ts'
import { WholeEvents } from '../whole-events.ts'
import type { Progress } from './progress.ts'
import { readEvent, textOf, type TokenEvent } from './token-events.ts'

const MAX_EVENT_BYTES = 16 << 20

type Json = Record<string, unknown>

export interface Seam {
  readonly progress: Progress
  /** Tokens before the seam, which are part of this worker's prompt. */
  readonly cut: number
  /** The prompt that this worker was given, as JSON; undefined: the client's own. */
  readonly promptIds: string | undefined
  /** The client has a chat, and the worker sends completions. */
  readonly toChat: boolean
  readonly keepsIds: boolean
}

export class JoinedEvents implements StreamEvents {
  readonly endsUnannounced = false
  readonly amidEvent = false
  events = 0
  /** It does not go on where the client's stream ended. */
  diverged = false
  readonly #seam: Seam
  readonly #whole = new WholeEvents(MAX_EVENT_BYTES)
  readonly #splitter = new EventSplitter()
  /** Tokens that the client has already, and that this worker has yet to generate. */
  readonly #again: readonly number[]
  #compared = 0
  #checkedPrompt: boolean

  constructor(seam: Seam) {
    this.#seam = seam
    this.#again = seam.progress.ids.slice(seam.cut)
    this.#checkedPrompt = seam.promptIds === undefined
  }

  get done(): boolean {
    return this.#whole.done && !this.diverged
  }
  get started(): boolean {
    return this.events > 0 || this.done
  }
  get failed(): boolean {
    return this.#whole.failed || this.#whole.amidEvent || this.diverged
  }

  push(chunk: Buffer): Buffer | undefined {
    const passed = this.#whole.push(chunk)
    if (passed === undefined || this.#whole.amidEvent) return undefined
    let out = ''
    for (const data of this.#splitter.push(passed)) {
      const event = data === '[DONE]' ? data : this.#event(data)
      if (this.diverged) break
      if (event === undefined) continue
      if (event !== '[DONE]') this.events++
      out += `data: ${event}\n\n`
    }
    return out === '' ? undefined : Buffer.from(out)
  }

  /** Undefined if the client is not to see it. */
  #event(data: string): string | undefined {
    const event = objectIn(data)
    if (event === undefined) return this.#stop()
    const choice = event.choices?.[0]
    if (choice === undefined) return this.#rewritten(event, undefined)
    this.#checkPrompt(event)
    const ids = Array.isArray(choice.token_ids) ? (choice.token_ids as number[]) : []
    const again = this.#again.slice(this.#compared, this.#compared + ids.length)
    if (this.diverged || again.some((id, at) => id !== ids[at])) return this.#stop()
    this.#compared += again.length
    const own = ids.slice(again.length)
    const text = textOf(choice)
    const isFinish = typeof choice.finish_reason === 'string'
    if (own.length === 0 && !isFinish && (again.length > 0 || text === ''))
      // With stop strings the client has this text; otherwise these tokens had none.
      return text !== '' && !this.#seam.progress.overlaps ? this.#stop() : undefined
    // Where the text of an event belongs to both sides, nothing says where to cut it.
    const isMixed = again.length > 0 && this.#seam.progress.overlaps && text !== ''
    if (isMixed || this.#compared < this.#again.length) return this.#stop()
    return this.#rewritten(event, Array.isArray(choice.token_ids) ? own : undefined)
  }

  #stop(): undefined {
    this.diverged = true
    return undefined
  }

  /** The first event shows the prompt that the worker has used. */
  #checkPrompt(event: TokenEvent): void {
    if (this.#checkedPrompt) return
    this.#checkedPrompt = true
    const [choice] = event.choices as readonly Json[]
    const used = choice!['prompt_token_ids'] ?? (event as unknown as Json)['prompt_token_ids']
    if (JSON.stringify(used) !== this.#seam.promptIds) this.diverged = true
  }

  #rewritten(event: TokenEvent, ids: readonly number[] | undefined): string {
    const { progress, toChat, keepsIds } = this.#seam
    const [choice] = (event.choices ?? []) as readonly Json[]
    if (choice !== undefined) readEvent(progress, { ...event, choices: [{ ...choice, token_ids: ids }] })
    else readEvent(progress, event)
    const seen = keepsIds ? ids : null
    const choices =
      choice === undefined ? [] : [toChat ? chatChoice(choice, seen) : { ...choice, ...shown(choice, seen) }]
    const object = toChat ? { object: 'chat.completion.chunk' } : {}
    const own = { ...object, choices, ...this.#usage(event.usage), prompt_token_ids: undefined }
    return JSON.stringify({ ...event, ...progress.head, ...own })
  }

  /** As of one response: the tokens before the seam are no part of its prompt. */
  #usage(usage: unknown): { readonly usage?: unknown } {
    if (usage === undefined || usage === null) return {}
    const { cut, progress } = this.#seam
    const given = usage as {
      completion_tokens?: number
      prompt_tokens?: number
      prompt_tokens_details?: unknown
    }
    const prompt = (given.prompt_tokens ?? 0) - (this.#seam.promptIds === undefined ? 0 : cut)
    const completion = (given.completion_tokens ?? 0) + cut
    const details = given.prompt_tokens_details as { cached_tokens?: number } | null | undefined
    const cached = details?.cached_tokens
    return {
      usage: {
        ...given,
        prompt_tokens: progress.promptTokens || prompt,
        total_tokens: (progress.promptTokens || prompt) + completion,
        completion_tokens: completion,
        ...(cached !== undefined && {
          prompt_tokens_details: { ...details, cached_tokens: Math.min(cached, prompt) },
        }),
      },
    }
  }
}

function objectIn(data: string): TokenEvent | undefined {
  try {
    const value = JSON.parse(data) as unknown
    return value !== null && typeof value === 'object' ? (value as TokenEvent) : undefined
  } catch {
    return undefined
  }
}

/** A choice of a completion without what only the first event has. */
function shown(choice: Json, ids: unknown): Json {
  return { token_ids: ids, ...('prompt_token_ids' in choice && { prompt_token_ids: null }) }
}

function chatChoice(choice: Json, ids: unknown): Json {
  const { index, text, logprobs, finish_reason, stop_reason } = choice
  return {
    index,
    delta: { content: text },
    logprobs: logprobs ?? null,
    finish_reason: finish_reason ?? null,
    // Chats have it only at the end.
    ...(typeof finish_reason === 'string' && 'stop_reason' in choice && { stop_reason }),
    token_ids: ids,
  }
}
