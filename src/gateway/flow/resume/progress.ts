/**
 * What a stream has generated so far, as far as another worker needs it to go on: the ids of its prompt and
 * of its tokens, and after which of them the client had all of the text.
 */

/** Why a broken stream was not resumed. */
export const NOT_RESUMED = [
  /** A field of the request whose effect at the seam is not known. */
  'field',
  'guided',
  'logprobs',
  'tools',
  'penalties',
  'multimodal',
  /** Sampled, and its random numbers cannot be repeated. */
  'sampled',
  /** The worker sends no token ids. */
  'no_ids',
  /** Tool calls or reasoning that the worker separated from the text. */
  'parsed',
  /** More tokens than `resume.maxTokens`. */
  'too_long',
  /** As often as `resume.maxPerRequest`. */
  'limit',
  'budget',
  'no_worker',
  /** Another worker failed too, or refused. */
  'failed',
  /** Another worker generated other tokens than the client has. */
  'diverged',
] as const
export type NotResumed = (typeof NOT_RESUMED)[number]

/** Of an id in JSON, with its comma. */
const LEAST_BYTES = 2

/** Members that all events of a stream share. */
export interface StreamHead {
  readonly id: unknown
  readonly created: unknown
  readonly model: unknown
}

export class Progress {
  readonly ids: number[] = []
  head: StreamHead | undefined
  /** The finish reason was sent. */
  finished = false
  usageSent = false
  /** Set for good once the stream cannot be resumed. */
  obstacle: NotResumed | undefined
  readonly #maxTokens: number
  readonly #overlapBytes: number
  #promptIds: Buffer | undefined
  #promptTokens: number | undefined
  /** At least as many as there are. */
  #mostPromptTokens = 0
  /** Tokens up to the last event with text. */
  #textTokens = 0
  /** For each event with text: tokens so far, and bytes of text so far. Kept only with stop strings. */
  readonly #marks: number[] = []
  #textBytes = 0
  /** What the client had when the leg began. */
  #kept = { ids: 0, textTokens: 0, marks: 0, textBytes: 0, head: undefined as StreamHead | undefined }

  /**
   * `overlapBytes`: text that another worker must generate again before the seam, because the worker held
   * back as much that may be the start of a stop string.
   */
  constructor(maxTokens: number, overlapBytes: number) {
    this.#maxTokens = maxTokens
    this.#overlapBytes = overlapBytes
  }

  /** Called after each event whose ids were added. `textBytes`: of its text. */
  added(textBytes: number): void {
    if (this.obstacle !== undefined) return void (this.ids.length = 0)
    const count = this.ids.length
    if (this.#mostPromptTokens + count > this.#maxTokens) {
      this.#mostPromptTokens = this.promptTokens
      if (this.#mostPromptTokens + count > this.#maxTokens) return this.drop('too_long')
    }
    if (textBytes === 0) return
    this.#textTokens = count
    if (this.#overlapBytes === 0) return
    this.#textBytes += textBytes
    this.#marks.push(count, this.#textBytes)
  }

  /** `ids`: a JSON list, of which the bytes are kept. */
  prompt(ids: Buffer): void {
    if (this.obstacle !== undefined) return
    this.#promptIds = Buffer.from(ids)
    // Counting costs more than all else that is done with a long prompt, so it waits until it matters.
    this.#promptTokens = undefined
    this.#mostPromptTokens = ids.length / LEAST_BYTES
    if (this.#mostPromptTokens > this.#maxTokens) this.#mostPromptTokens = this.promptTokens
    if (this.#mostPromptTokens > this.#maxTokens) this.drop('too_long')
  }

  /** JSON, with brackets; undefined if it is not known. */
  get promptIds(): string | undefined {
    return this.#promptIds?.toString('latin1').replaceAll(/\s/g, '')
  }

  get promptTokens(): number {
    this.#promptTokens ??= (this.promptIds?.match(/\d+/g) ?? []).length
    return this.#promptTokens
  }

  /** A leg begins. */
  mark(): void {
    const { ids, head } = this
    const [textTokens, textBytes] = [this.#textTokens, this.#textBytes]
    this.#kept = { ids: ids.length, textTokens, marks: this.#marks.length, textBytes, head }
  }

  /** The leg ended before the client got anything of it: what was read does not count. */
  rewind(): void {
    if (this.obstacle !== undefined) return
    this.ids.length = this.#kept.ids
    this.#marks.length = this.#kept.marks
    this.#textTokens = this.#kept.textTokens
    this.#textBytes = this.#kept.textBytes
    this.head = this.#kept.head
    this.finished = this.usageSent = false
  }

  /** Gives up; the first reason counts. */
  drop(why: NotResumed): void {
    this.obstacle ??= why
    this.ids.length = 0
    this.#marks.length = 0
    this.#promptIds = undefined
  }

  /**
   * Number of tokens after which another worker goes on. Those that follow are generated again and compared.
   * Without stop strings these are only tokens without text: special ones, and the start of a character.
   */
  get cut(): number {
    if (this.#overlapBytes === 0) return this.#textTokens
    const marks = this.#marks
    for (let at = marks.length - 2; at >= 0; at -= 2)
      if (this.#textBytes - marks[at + 1]! >= this.#overlapBytes) return marks[at]!
    return 0
  }

  /** Whether tokens after `cut` may have text that the client has already. */
  get overlaps(): boolean {
    return this.#overlapBytes > 0
  }
}
