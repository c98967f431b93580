/**
 * Finds the token ids of an event in its bytes without parsing it. The events of a stream differ only in text
 * and ids, so the first one that is parsed shows where everything is in the others. An event of another shape
 * is not read here: it is parsed.
 */
const [NEWLINE, QUOTE, COMMA, ZERO, NINE, COLON, OPEN_LIST, CLOSE_LIST] = [
  0x0a, 0x22, 0x2c, 0x30, 0x39, 0x3a, 0x5b, 0x5d,
]
const [LOWER_D, LOWER_H, LOWER_N, LOWER_S, LOWER_T] = [0x64, 0x68, 0x6e, 0x73, 0x74]
/** From `null` of `"finish_reason":null` back to the h of its name, which `"stop_reason"` does not have. */
const TO_FINISH = 10

const IDS = /"token_ids":\[(\d[\d,]*)\]/
/** Bytes as latin1: the text has as many characters as bytes. */
const TEXT = /"(?:content|text)":"((?:[^"\\]|\\.)*)"/
const FINISH = '"finish_reason":null'

export class EventShape {
  /** First byte of the text. */
  readonly #textAt: number
  /** Bytes after the list of ids. */
  readonly #tail: number
  /** From `null` of the finish reason to the list. */
  readonly #toFinish: number
  /** Bytes of the event without text and without ids. */
  readonly #fixed: number
  /** Of the last list found: its brackets. */
  open = 0
  close = 0

  private constructor(textAt: number, tail: number, toFinish: number, fixed: number) {
    this.#textAt = textAt
    this.#tail = tail
    this.#toFinish = toFinish
    this.#fixed = fixed
  }

  /** `event`: one with ids and without a finish reason, as latin1; undefined if its shape cannot be used. */
  static of(event: string): EventShape | undefined {
    const [ids, text, finish] = [IDS.exec(event), TEXT.exec(event), event.indexOf(FINISH)]
    if (ids === null || text === null || finish < 0 || !event.startsWith('data: {"id":')) return undefined
    const close = ids.index + ids[0].length - 1
    const open = close - ids[1]!.length - 1
    const textEnd = text.index + text[0].length - 1
    const isInOrder = textEnd < finish && finish < open
    if (!isInOrder || !event.endsWith('}\n\n')) return undefined
    const [textBytes, listBytes] = [text[1]!.length, close - open]
    return new EventShape(
      textEnd - textBytes,
      event.length - close - 1,
      open - (finish + FINISH.length - 4),
      event.length - textBytes - listBytes,
    )
  }

  /**
   * Adds the ids of the event and returns the bytes of its text, as they are in JSON; −1 if it has another
   * shape, and nothing was added.
   */
  read(event: Buffer, ids: number[]): number {
    const { length } = event
    const close = length - this.#tail - 1
    const textAt = this.#textAt
    if (event[0] !== LOWER_D || event[length - 1] !== NEWLINE || event[close] !== CLOSE_LIST) return -1
    if (event[textAt - 1] !== QUOTE || event[textAt - 2] !== COLON || event[textAt - 4] !== LOWER_T) return -1
    const first = ids.length
    let [id, scale] = [0, 1]
    let at = close - 1
    for (; ; at--) {
      const byte = event[at]!
      if (byte >= ZERO && byte <= NINE) {
        id += (byte - ZERO) * scale
        scale *= 10
      } else if ((byte === COMMA || byte === OPEN_LIST) && scale > 1) {
        ids.push(id)
        if (byte === OPEN_LIST) break
        id = 0
        scale = 1
      } else return undo(ids, first)
    }
    const finish = at - this.#toFinish
    const isToken =
      event[at - 1] === COLON &&
      event[at - 3] === LOWER_S &&
      event[finish] === LOWER_N &&
      event[finish - TO_FINISH] === LOWER_H
    const textBytes = length - (close - at) - this.#fixed
    if (!isToken || textBytes < 0) return undo(ids, first)
    if (ids.length - first > 1) ids.push(...ids.splice(first).toReversed())
    this.open = at
    this.close = close
    return textBytes
  }
}

function undo(ids: number[], length: number): -1 {
  ids.length = length
  return -1
}
