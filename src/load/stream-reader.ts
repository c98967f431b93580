/**
 * Counts the tokens of one OpenAI event stream as its bytes come. Twenty thousand events a second must cost little, so an event that
 * plainly has text is counted without being parsed; those that do not (a chat's opening, usage, errors, reasoning) are, and the last one.
 */
import { createHash, type Hash } from 'node:crypto'

export interface Usage {
  readonly promptTokens: number
  readonly completionTokens: number
}

const NEWLINE = 10
const RETURN = 13
const SPACE = 32
const QUOTE = 34
const COLON = 58
const BACKSLASH = 92
/** No event is longer; what is, is no event stream. */
const MOST_LINE_BYTES = 4 << 20

const KEYS = { completions: Buffer.from('"text"'), chat: Buffer.from('"content"') } as const

export class StreamReader {
  /** Events with text. */
  events = 0
  firstMs = NaN
  lastMs = NaN
  usage: Usage | undefined
  /** [DONE] has come. */
  done = false
  /** A choice has said why it ended. */
  finished = false
  /** What the server said went wrong, or what is wrong with what it sent. */
  error: string | undefined
  garbage: string | undefined
  /** Milliseconds between one event with text and the next. */
  readonly gapsMs: number[] = []
  readonly #key: Buffer
  /** Of all text, as it stood in the events: two streams of one server with the same text have the same. */
  readonly #hash: Hash | undefined
  /** What has come of a line that has not ended. */
  #rest: Buffer | undefined
  /** The last event that was counted without being parsed. */
  #last: Buffer | undefined

  constructor(api: keyof typeof KEYS, { hash = false }: { readonly hash?: boolean } = {}) {
    this.#key = KEYS[api]
    this.#hash = hash ? createHash('sha256') : undefined
  }

  /** Once, at the end; undefined where no hash was asked for. */
  digest(): string | undefined {
    return this.#hash?.digest('hex')
  }

  /** `nowMs`: when the bytes came. An event has come when its line has ended. */
  push(chunk: Buffer, nowMs: number): void {
    let from = 0
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, from)) {
      if (this.#rest !== undefined) {
        const line = Buffer.concat([this.#rest, chunk.subarray(from, end)])
        this.#rest = undefined
        this.#line(line, 0, line.length, nowMs)
      } else if (end > from) this.#line(chunk, from, end, nowMs)
      from = end + 1
    }
    if (from < chunk.length) this.#keep(from === 0 ? chunk : chunk.subarray(from))
  }

  /** The body has ended. */
  end(nowMs: number): void {
    const rest = this.#rest
    this.#rest = undefined
    if (rest !== undefined) this.#line(rest, 0, rest.length, nowMs)
    // The last token often says why it was the last, and with some servers how many there were.
    if (this.#last !== undefined && (!this.finished || this.usage === undefined)) this.#parsed(this.#last)
  }

  #keep(part: Buffer): void {
    this.#rest = this.#rest === undefined ? part : Buffer.concat([this.#rest, part])
    if (this.#rest.length <= MOST_LINE_BYTES) return
    this.garbage ??= `a line of more than ${MOST_LINE_BYTES} bytes`
    this.#rest = undefined
  }

  #line(bytes: Buffer, from: number, to: number, nowMs: number): void {
    const end = bytes[to - 1] === RETURN ? to - 1 : to
    if (end - from < 5 || !startsWithData(bytes, from)) return // a comment, a name or the empty line between two events
    const at = bytes[from + 5] === SPACE ? from + 6 : from + 5
    const text = this.#textAt(bytes, at, end)
    if (text >= 0) {
      this.#last = bytes.subarray(at, end)
      this.#hash?.update(bytes.subarray(text, endOfString(bytes, text, end)))
      this.#token(nowMs)
      return
    }
    const said = this.#parsed(bytes.subarray(at, end))
    if (said === '') return
    this.#hash?.update(said)
    this.#token(nowMs)
  }

  #token(nowMs: number): void {
    if (this.events++ === 0) this.firstMs = nowMs
    else this.gapsMs.push(nowMs - this.lastMs)
    this.lastMs = nowMs
  }

  /** Where the string begins that the key stands before, if it is not empty. −1 means that it takes a closer look. */
  #textAt(bytes: Buffer, from: number, to: number): number {
    let at = bytes.indexOf(this.#key, from)
    if (at < 0 || at >= to) return -1
    at += this.#key.length
    while (bytes[at] === SPACE) at++
    if (bytes[at] !== COLON) return -1
    do at++
    while (bytes[at] === SPACE)
    return bytes[at] === QUOTE && bytes[at + 1] !== QUOTE ? at + 1 : -1
  }

  /** Takes an event apart. Gives its text. */
  #parsed(bytes: Buffer): string {
    const text = bytes.toString('utf8')
    if (text === '[DONE]') {
      this.done = true
      return ''
    }
    let event: unknown
    try {
      event = JSON.parse(text)
    } catch {
      this.garbage ??= `an event that is not JSON: ${text.slice(0, 100)}`
      return ''
    }
    if (!isRecord(event)) return ''
    if (event['error'] !== undefined && event['error'] !== null) this.error ??= errorText(event['error'])
    this.usage = usageOf(event['usage']) ?? this.usage
    const choice: unknown = Array.isArray(event['choices']) ? event['choices'][0] : undefined
    if (!isRecord(choice)) return ''
    if (typeof choice['finish_reason'] === 'string') this.finished = true
    return [choice, choice['delta']]
      .flatMap(said => (isRecord(said) ? SAID.map(key => textIn(said[key])) : []))
      .join('')
  }
}

const SAID = ['text', 'content', 'reasoning_content', 'reasoning', 'tool_calls'] as const

/** A text, or a list with something in it. */
function textIn(value: unknown): string {
  if (typeof value === 'string') return value
  return Array.isArray(value) && value.length > 0 ? JSON.stringify(value) : ''
}

/** Of a JSON string: where its closing quote stands. */
function endOfString(bytes: Buffer, from: number, to: number): number {
  for (let at = from; at < to; at++) {
    if (bytes[at] === BACKSLASH) at++
    else if (bytes[at] === QUOTE) return at
  }
  return to
}

function startsWithData(bytes: Buffer, at: number): boolean {
  return (
    bytes[at] === 0x64 &&
    bytes[at + 1] === 0x61 &&
    bytes[at + 2] === 0x74 &&
    bytes[at + 3] === 0x61 &&
    bytes[at + 4] === COLON
  )
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

function usageOf(value: unknown): Usage | undefined {
  if (!isRecord(value)) return undefined
  const { prompt_tokens: prompt, completion_tokens: completion } = value
  if (typeof completion !== 'number') return undefined
  return { promptTokens: typeof prompt === 'number' ? prompt : 0, completionTokens: completion }
}

/** What a body or an event says of an error, in one line. */
export function errorText(error: unknown): string {
  const message = isRecord(error) ? (error['message'] ?? error['detail']) : error
  return (typeof message === 'string' ? message : (JSON.stringify(message ?? error) ?? ''))
    .replace(/\s+/g, ' ')
    .slice(0, 200)
}
