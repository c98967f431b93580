/**
 * Standard error for a log of many lines. Node writes to a pipe synchronously: a reader that sleeps would hold up every request, and each
 * line would be a write. Here lines are gathered for a moment and written without waiting; a reader that has stopped reading costs a
 * bounded amount of memory and then lines, never time.
 */
import { fstatSync, writeSync } from 'node:fs'
import { Socket } from 'node:net'

const STDERR = 2
/** Lines are gathered for so long, or until there are so many bytes of them. */
const [GATHER_MS, GATHER_BYTES] = [100, 8_192]
/** How long the last lines may take. */
const LAST_MS = 1_000
/** What may wait for a reader; what comes after that is dropped. */
const MOST_WAITING_BYTES = 4 << 20

class GatheredStderr {
  readonly #socket = new Socket({ fd: STDERR, readable: false, writable: true })
  #text = ''
  #dropped = 0
  #timer: NodeJS.Timeout | undefined

  constructor() {
    this.#socket.unref() // a log keeps no process alive
    this.#socket.on('error', () => {}) // whoever read it is gone
    process.once('exit', () => this.#last())
  }

  write(line: string): void {
    this.#text += line
    if (this.#text.length >= GATHER_BYTES) this.#flush()
    else this.#timer ??= setTimeout(() => this.#flush(), GATHER_MS).unref()
  }

  /** Bytes that wait keep a process alive: a reader that does not take the last of them in time does not get them. */
  async close(): Promise<void> {
    this.#flush()
    const gone = new Promise(resolve => this.#socket.once('close', resolve))
    const timer = setTimeout(() => this.#socket.destroy(), LAST_MS)
    this.#socket.destroySoon()
    await gone
    clearTimeout(timer)
  }

  #flush(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    if (this.#socket.writableLength > MOST_WAITING_BYTES) this.#dropped += this.#text.split('\n').length - 1
    else {
      const gap =
        this.#dropped === 0
          ? ''
          : `${JSON.stringify({ level: 40, lines: this.#dropped, msg: 'nobody read the log' })}\n`
      this.#dropped = 0
      this.#socket.write(gap + this.#text)
    }
    this.#text = ''
  }

  /** The event loop has ended: what a reader takes at once it gets. */
  #last(): void {
    try {
      if (this.#text !== '' && !this.#socket.destroyed && this.#socket.writableLength === 0)
        writeSync(STDERR, this.#text)
    } catch {} // the pipe is full, or its reader gone
  }
}

let gathered: GatheredStderr | undefined

/** Nothing is logged after it. */
export async function closeLog(): Promise<void> {
  await gathered?.close()
}

/** One for all logs of a process. Files never wait, and a terminal is for people. */
export function logOutput(): { write(line: string): void } {
  const stat = fstatSync(STDERR)
  return stat.isFIFO() || stat.isSocket() ? (gathered ??= new GatheredStderr()) : process.stderr
}
