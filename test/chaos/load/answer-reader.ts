/** Reads a response of the completion APIs, streamed or whole, and keeps what the checker compares. */
import type { Observation } from '../observation.ts'

type Content = Pick<
  Observation,
  | 'text'
  | 'ids'
  | 'finishes'
  | 'dones'
  | 'codes'
  | 'late'
  | 'usage'
  | 'names'
  | 'malformed'
  | 'firstMs'
  | 'pauseMs'
>

interface Body {
  readonly id?: string
  readonly created?: number
  readonly error?: { readonly code?: unknown }
  readonly usage?: { readonly prompt_tokens: number; readonly completion_tokens: number } | null
  readonly choices?: readonly {
    readonly text?: string
    readonly delta?: { readonly content?: string | null }
    readonly message?: { readonly content?: string | null }
    readonly token_ids?: readonly number[] | null
    readonly finish_reason?: string | null
  }[]
}

const DATA = 'data: '
const MAX_SHOWN = 200

export class AnswerReader {
  readonly #isStream: boolean
  readonly #wantsIds: boolean
  readonly #decoder = new TextDecoder()
  readonly #ids: number[] = []
  readonly #finishes: string[] = []
  readonly #codes: string[] = []
  readonly #names = new Set<string>()
  readonly #malformed: string[] = []
  #rest = ''
  #text = ''
  #dones = 0
  #late = 0
  #usage: Content['usage']
  #firstMs: number | undefined
  #lastMs = 0
  #pauseMs = 0

  constructor(isStream: boolean, wantsIds: boolean) {
    this.#isStream = isStream
    this.#wantsIds = wantsIds
  }

  get hasBegun(): boolean {
    return this.#firstMs !== undefined
  }

  read(chunk: Buffer, atMs: number): void {
    this.#rest += this.#decoder.decode(chunk, { stream: true })
    // An error response is not a stream, even if the request asked for one.
    if (!this.#isStream || !this.#rest.startsWith('data:')) return
    const events = this.#rest.split('\n\n')
    this.#rest = events.pop()!
    for (const event of events) this.#event(event, atMs)
  }

  /** `isComplete`: whether the body was received to its end. */
  result(status: number, isComplete: boolean): Content {
    if (this.#rest !== '' && !this.#rest.startsWith('data:')) {
      if (isComplete) this.#whole(status)
    } else if (this.#rest !== '' && isComplete) this.#malformed.push(this.#rest.slice(0, MAX_SHOWN))
    const isAnswer = this.#wantsIds && status === 200
    return {
      text: this.#text,
      ids: isAnswer && (this.#isStream || isComplete) ? this.#ids : undefined,
      finishes: this.#finishes,
      dones: this.#dones,
      codes: this.#codes,
      late: this.#late,
      usage: this.#usage,
      names: this.#names.size,
      malformed: this.#malformed,
      firstMs: this.#firstMs,
      pauseMs: this.#pauseMs,
    }
  }

  #whole(status: number): void {
    const body = this.#parse(this.#rest)
    if (body !== undefined) this.#take(body, 0, status)
  }

  #event(event: string, atMs: number): void {
    if (this.#dones > 0 || this.#codes.length > 0) this.#late++
    if (!event.startsWith(DATA) || event.includes('\n'))
      return void this.#malformed.push(event.slice(0, MAX_SHOWN))
    const data = event.slice(DATA.length)
    if (data === '[DONE]') return void this.#dones++
    const body = this.#parse(data)
    if (body !== undefined) this.#take(body, atMs, 200)
  }

  #parse(text: string): Body | undefined {
    try {
      return JSON.parse(text) as Body
    } catch {
      this.#malformed.push(text.slice(0, MAX_SHOWN))
      return undefined
    }
  }

  #take({ id, created, error, usage, choices }: Body, atMs: number, status: number): void {
    if (error !== undefined) return void this.#codes.push(String(error.code ?? `status ${status}`))
    this.#names.add(`${id} ${created}`)
    if (usage != null) this.#usage = { prompt: usage.prompt_tokens, completion: usage.completion_tokens }
    for (const { text, delta, message, token_ids, finish_reason } of choices ?? []) {
      const more = text ?? delta?.content ?? message?.content ?? ''
      this.#text += more
      this.#ids.push(...(token_ids ?? []))
      if (finish_reason != null) this.#finishes.push(finish_reason)
      if (atMs > 0 && (more !== '' || (token_ids?.length ?? 0) > 0)) this.#token(atMs)
    }
  }

  #token(atMs: number): void {
    if (this.#firstMs === undefined) this.#firstMs = atMs
    else this.#pauseMs = Math.max(this.#pauseMs, atMs - this.#lastMs)
    this.#lastMs = atMs
  }
}
