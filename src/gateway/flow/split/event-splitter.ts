const [NEWLINE, RETURN] = [0x0a, 0x0d]

/** Splits a stream into events for the merge of split requests. Chunks may cut an event anywhere. */
export class EventSplitter {
  #rest: Buffer = Buffer.alloc(0)

  /** Data of each event that the chunk completes, without `data: `. */
  push(chunk: Buffer): string[] {
    const bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk])
    const events: string[] = []
    let from = 0
    for (let at = bytes.indexOf(NEWLINE); at >= 0; at = bytes.indexOf(NEWLINE, at + 1)) {
      const next = bytes[at + 1] === RETURN ? at + 2 : at + 1
      if (bytes[next] !== NEWLINE) continue // the next line is not empty
      const data = dataOf(bytes.toString('utf8', from, at))
      if (data !== undefined) events.push(data)
      from = next + 1
      at = next
    }
    this.#rest = bytes.subarray(from)
    return events
  }
}

function dataOf(event: string): string | undefined {
  const lines = event.split(/\r?\n/).filter(line => line.startsWith('data:'))
  return lines.length === 0
    ? undefined
    : lines.map(line => line.slice(line[5] === ' ' ? 6 : 5).trimEnd()).join('\n')
}
