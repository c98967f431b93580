/**
 * A stream whose events have token ids: keeps the ids and removes them from what the client sees. Events pass
 * in whole; where the ids stood there is null, and spaces after it, so that the bytes keep their framing.
 */
import type { StreamEvents } from '../response-rules.ts'
import { WholeEvents } from '../whole-events.ts'
import { EventShape } from './event-shape.ts'
import type { Progress, StreamHead } from './progress.ts'

/** The first event has the ids of the prompt. A larger one fails the stream. */
const MAX_EVENT_BYTES = 16 << 20
const [SPACE, CLOSE_LIST, LOWER_N, LOWER_U, LOWER_L] = [0x20, 0x5d, 0x6e, 0x75, 0x6c]
const NULL_BYTES = 4
/** A string in JSON contains no quote without a backslash, so these are never part of a text. */
const PROMPT_KEY = Buffer.from('"prompt_token_ids":[')
const NULL = Buffer.from('null')
const IDS_KEY = 'token_ids":'
const LISTS = /("(?:prompt_)?token_ids":)\[[\d,\s]*\]/g

/** The members of an event that are read. */
export interface TokenEvent extends StreamHead {
  readonly choices?: readonly {
    readonly text?: unknown
    readonly delta?: Readonly<Record<string, unknown>>
    readonly finish_reason?: unknown
    readonly token_ids?: unknown
  }[]
  readonly usage?: unknown
}

export class TokenEvents implements StreamEvents {
  readonly endsUnannounced = false
  readonly amidEvent = false
  readonly #progress: Progress
  /** The client asked for the ids. */
  readonly #keepsIds: boolean
  readonly #whole = new WholeEvents(MAX_EVENT_BYTES)
  #shape: EventShape | undefined

  constructor(progress: Progress, keepsIds: boolean) {
    this.#progress = progress
    this.#keepsIds = keepsIds
  }

  get events(): number {
    return this.#whole.events
  }
  get done(): boolean {
    return this.#whole.done
  }
  get started(): boolean {
    return this.#whole.started
  }
  get failed(): boolean {
    return this.#whole.failed || this.#whole.amidEvent
  }

  push(chunk: Buffer): Buffer | undefined {
    const { events } = this.#whole
    const passed = this.#whole.push(chunk)
    if (passed === undefined || this.#whole.amidEvent) return undefined
    const isOne = this.#whole.events === events + 1 && !this.#whole.done
    if (isOne && this.#shape !== undefined) {
      const { ids } = this.#progress
      const textBytes = this.#shape.read(passed, ids)
      if (textBytes >= 0) {
        this.#progress.added(textBytes)
        return this.#keepsIds ? passed : blanked(passed, this.#shape)
      }
    }
    return this.#parsed(passed)
  }

  #parsed(passed: Buffer): Buffer {
    const bytes = this.#withoutPrompt(passed)
    const latin1 = bytes.toString('latin1')
    const isWhole = latin1.indexOf('\n\n') === latin1.length - 2
    const events = isWhole ? [latin1] : latin1.split(/(?<=\n\r?\n)/)
    for (const event of events) this.#read(event)
    if (this.#keepsIds) return passed
    const cleaned = latin1.includes(IDS_KEY) ? latin1.replaceAll(LISTS, '$1null') : latin1
    return cleaned === latin1 ? bytes : Buffer.from(cleaned, 'latin1')
  }

  /** They may be many: they are cut out before anything else is read. */
  #withoutPrompt(bytes: Buffer): Buffer {
    const at = bytes.indexOf(PROMPT_KEY)
    const close = at < 0 ? -1 : bytes.indexOf(CLOSE_LIST, at)
    if (close < 0) return bytes
    const open = at + PROMPT_KEY.length - 1
    this.#progress.prompt(bytes.subarray(open, close + 1))
    return Buffer.concat([bytes.subarray(0, open), NULL, bytes.subarray(close + 1)])
  }

  #read(event: string): void {
    const from = event.indexOf('data:')
    if (from < 0) return
    const data = event.slice(from + 5)
    if (data.trim() === '[DONE]') return
    const read = parsedEvent(data)
    if (read === undefined) return this.#progress.drop('no_ids')
    const textBytes = readEvent(this.#progress, read)
    if (textBytes !== undefined && !read.usage) this.#shape ??= EventShape.of(event)
  }
}

const NOT_ASCII = /[\x80-\xff]/

/** `latin1`: the bytes of the event. Undefined if it is not an object. */
function parsedEvent(latin1: string): TokenEvent | undefined {
  try {
    const text = NOT_ASCII.test(latin1) ? Buffer.from(latin1, 'latin1').toString() : latin1
    const value = JSON.parse(text) as unknown
    return value !== null && typeof value === 'object' ? (value as TokenEvent) : undefined
  } catch {
    return undefined
  }
}

/** Takes what an event says. Returns the bytes of its text, or undefined if it has no tokens. */
export function readEvent(progress: Progress, event: TokenEvent): number | undefined {
  const { id, created, model } = event
  progress.head ??= { id, created, model }
  const choice = event.choices?.[0]
  if (choice === undefined) {
    if (event.usage) progress.usageSent = true
    return undefined
  }
  const { delta = {} } = choice
  const text = textOf(choice)
  const ids = choice.token_ids
  const hasIds = Array.isArray(ids) && ids.every(each => Number.isSafeInteger(each))
  for (const name in delta)
    if (name !== 'role' && name !== 'content' && !isNothing(delta[name])) progress.drop('parsed')
  if (typeof choice.finish_reason === 'string') progress.finished = true
  if (!hasIds && (text !== '' || progress.finished)) progress.drop('no_ids')
  if (!hasIds || progress.obstacle !== undefined) return undefined
  progress.ids.push(...(ids as number[]))
  const textBytes = Buffer.byteLength(text)
  progress.added(textBytes)
  return ids.length === 0 ? undefined : textBytes
}

export function textOf({ text, delta }: NonNullable<TokenEvent['choices']>[number]): string {
  const said = text ?? delta?.['content']
  return typeof said === 'string' ? said : ''
}

/** Engines send empty members for what is not there. */
function isNothing(value: unknown): boolean {
  return value === null || value === '' || (Array.isArray(value) && value.length === 0)
}

function blanked(event: Buffer, { open, close }: EventShape): Buffer {
  if (close - open + 1 < NULL_BYTES)
    return Buffer.concat([event.subarray(0, open), Buffer.from('null'), event.subarray(close + 1)])
  event[open] = LOWER_N
  event[open + 1] = LOWER_U
  event[open + 2] = event[open + 3] = LOWER_L
  for (let at = open + NULL_BYTES; at <= close; at++) event[at] = SPACE
  return event
}
