/**
 * Scans a server-sent event stream as it passes, only as far as needed: how many events it had, whether one
 * was an error, and whether it ended with [DONE]. Chunks may cut an event anywhere; most hold exactly one.
 */
const [NEWLINE, RETURN, QUOTE, COLON, LOWER_D, LOWER_E, LOWER_O, OPEN] = [
  0x0a, 0x0d, 0x22, 0x3a, 0x64, 0x65, 0x6f, 0x7b,
]
const DONE = /^data: ?\[DONE\]/
/** The second form is from older engines. */
const ERROR = /^data: ?\{"(?:error"\s*:\s*[{"]|object"\s*:\s*"error")/
/** Bytes of an event that are inspected. */
const HEAD = 32

export class StreamWatch {
  /** Without [DONE] and comments. */
  events = 0
  done = false
  /** An event with {"error": …}, which is how engines fail after a status of 200. */
  failed = false
  /** Start of an event that an earlier chunk began. */
  #head = ''
  /** The line that the next chunk continues is empty so far. */
  #lineEmpty = true

  /**
   * @returns the number of bytes up to the end of the last whole event before an error event. After an error,
   * always 0.
   */
  push(chunk: Buffer): number {
    let at = 0
    while (at < chunk.length && !this.failed) {
      const end = this.#endOfEvent(chunk, at)
      if (end < 0) {
        if (this.#head.length < HEAD)
          this.#head += chunk.toString('latin1', at, Math.min(chunk.length, at + HEAD - this.#head.length))
        break
      }
      this.#endEvent(chunk, at, end)
      if (!this.failed) at = end
    }
    return at
  }

  /**
   * Position after the empty line that ends the event, or −1. Lines may end in \r\n and start in an earlier
   * chunk.
   */
  #endOfEvent(chunk: Buffer, from: number): number {
    let lineStart = from
    for (let at = chunk.indexOf(NEWLINE, from); at >= 0; at = chunk.indexOf(NEWLINE, at + 1)) {
      const empty = this.#lineEmpty && isEmpty(chunk, lineStart, at)
      this.#lineEmpty = true
      lineStart = at + 1
      if (empty) return lineStart
      if (chunk[lineStart] === NEWLINE) return lineStart + 1
    }
    this.#lineEmpty &&= isEmpty(chunk, lineStart, chunk.length)
    return -1
  }

  #endEvent(chunk: Buffer, from: number, end: number): void {
    if (this.#head === '' && isOrdinary(chunk, from)) {
      this.events++
      return
    }
    const rest = HEAD - this.#head.length
    const head = (
      rest > 0 ? this.#head + chunk.toString('latin1', from, Math.min(end, from + rest)) : this.#head
    ).trimStart()
    this.#head = ''
    if (head === '' || head.startsWith(':')) return // a comment
    if (DONE.test(head)) this.done = true
    else if (ERROR.test(head)) this.failed = true
    else this.events++
  }
}

/**
 * Starts with `data: {"` and then neither `e` nor `o`: neither [DONE] nor an error. Checked without creating
 * a string.
 */
function isOrdinary(chunk: Buffer, at: number): boolean {
  const letter = chunk[at + 8]
  const opens =
    chunk[at] === LOWER_D && chunk[at + 4] === COLON && chunk[at + 6] === OPEN && chunk[at + 7] === QUOTE
  return opens && letter !== LOWER_E && letter !== LOWER_O
}

function isEmpty(chunk: Buffer, from: number, to: number): boolean {
  return to === from || (to === from + 1 && chunk[from] === RETURN)
}
