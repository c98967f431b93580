/**
 * Looks at a copy of a server-sent event stream as it goes by, only as far as the gateway must: how many events there were, whether one
 * of them is an error, whether the stream ended as streams of this API end, and the last event before that, which may hold the usage.
 * Chunks may cut an event anywhere; in most of them there is exactly one.
 */
const NEWLINE = 0x0a
const DONE = 'data: [DONE]'
/** What is looked at of an event's beginning. */
const HEAD = 24
/** Usage and the end are in the last events; a longer one is no usage. */
const TAIL_BYTES = 4_096

export class StreamWatch {
  /** Events with data, [DONE] aside. */
  events = 0
  done = false
  /** An event that begins with {"error": — the engine's way to fail after it has sent a status of 200. */
  failed = false
  #head = ''
  /** Nothing was seen yet of the line that a chunk begins in. */
  #lineEmpty = true
  #tail: Buffer[] = []
  #tailBytes = 0

  /** @returns how many of its bytes end whole events. After an error event nothing is looked at, and nothing is whole. */
  push(chunk: Buffer): number {
    if (this.failed) return 0
    this.#keep(chunk)
    let at = 0
    while (at < chunk.length && !this.failed) {
      if (this.#head.length < HEAD) this.#head += chunk.toString('latin1', at, Math.min(chunk.length, at + HEAD - this.#head.length))
      const end = this.#endOfEvent(chunk, at)
      if (end < 0) break
      this.#endEvent()
      at = end
    }
    return at
  }

  /** JSON of the last event before [DONE], where it is short. */
  lastEvent(): unknown {
    const events = Buffer.concat(this.#tail).toString('utf8').split('\n\n')
    const last = events.findLast(event => event.startsWith('data: {'))
    try {
      return last === undefined ? undefined : (JSON.parse(last.slice(6)) as unknown)
    } catch {
      return undefined
    }
  }

  /** After the empty line that ends the event, or −1. Lines may end in \r\n, and a line may have begun in an earlier chunk. */
  #endOfEvent(chunk: Buffer, from: number): number {
    let lineStart = from
    for (let at = chunk.indexOf(NEWLINE, from); at >= 0; at = chunk.indexOf(NEWLINE, at + 1)) {
      const empty = this.#lineEmpty && isEmpty(chunk, lineStart, at)
      this.#lineEmpty = true
      lineStart = at + 1
      if (empty) return lineStart
    }
    this.#lineEmpty &&= isEmpty(chunk, lineStart, chunk.length)
    return -1
  }

  #endEvent(): void {
    const head = this.#head.trimStart()
    this.#head = ''
    if (!head.startsWith('data:')) return
    if (head.startsWith(DONE)) this.done = true
    else {
      this.events++
      if (/^data: ?\{"error"\s*:\s*[{"]/.test(head)) this.failed = true
    }
  }

  #keep(chunk: Buffer): void {
    this.#tail.push(chunk)
    this.#tailBytes += chunk.length
    while (this.#tailBytes - this.#tail[0]!.length >= TAIL_BYTES) this.#tailBytes -= this.#tail.shift()!.length
  }
}

function isEmpty(chunk: Buffer, from: number, to: number): boolean {
  return to === from || (to === from + 1 && chunk[from] === 0x0d)
}
