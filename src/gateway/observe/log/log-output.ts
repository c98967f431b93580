/**
 * Standard error for the log. Node writes to a pipe synchronously, one write per line, so a slow reader would
 * block every request. Here lines are buffered briefly and written asynchronously. If the reader stops, a
 * bounded number of bytes is kept and later lines are dropped.
 */
import { fstatSync, writeSync } from 'node:fs'
import { Socket } from 'node:net'

const STDERR = 2
/** Lines are buffered for this time, or up to this size. */
const [BUFFER_MS, BUFFER_BYTES] = [100, 8_192]
/** Time to write the last lines at shutdown. */
const CLOSE_TIMEOUT_MS = 1_000
/** Unread bytes beyond which lines are dropped. */
const MAX_UNREAD_BYTES = 4 << 20

class BufferedStderr {
  readonly #socket = new Socket({ fd: STDERR, readable: false, writable: true })
  #text = ''
  #dropped = 0
  #timer: NodeJS.Timeout | undefined

  constructor() {
    this.#socket.unref() // the log must not keep the process alive
    this.#socket.on('error', () => {}) // the reader has closed the pipe
    process.once('exit', () => this.#writeRest())
  }

  write(line: string): void {
    this.#text += line
    if (this.#text.length >= BUFFER_BYTES) this.#flush()
    else this.#timer ??= setTimeout(() => this.#flush(), BUFFER_MS).unref()
  }

  /**
   * Pending writes keep the process alive, so they are given up after CLOSE_TIMEOUT_MS. Not ended but closed:
   * the end of a socket would end it for all processes that share it.
   */
  async close(): Promise<void> {
    this.#flush()
    let timer: NodeJS.Timeout | undefined
    const timeout = new Promise(resolve => (timer = setTimeout(resolve, CLOSE_TIMEOUT_MS)))
    await Promise.race([new Promise(resolve => this.#socket.write('', resolve)), timeout])
    clearTimeout(timer)
    this.#socket.destroy()
  }

  #flush(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    if (this.#socket.writableLength > MAX_UNREAD_BYTES) this.#dropped += this.#text.split('\n').length - 1
    else {
      const notice = { level: 40, lines: this.#dropped, msg: 'log lines dropped: the reader is too slow' }
      const prefix = this.#dropped === 0 ? '' : `${JSON.stringify(notice)}\n`
      this.#dropped = 0
      this.#socket.write(prefix + this.#text)
    }
    this.#text = ''
  }

  /** At exit only a synchronous write is possible. */
  #writeRest(): void {
    try {
      if (this.#text !== '' && !this.#socket.destroyed && this.#socket.writableLength === 0)
        writeSync(STDERR, this.#text)
    } catch {} // the pipe is full or closed
  }
}

let buffered: BufferedStderr | undefined

/** Writes what is buffered. Nothing may be logged afterwards. */
export async function closeLog(): Promise<void> {
  await buffered?.close()
}

/** One buffer for all logs of a process. Files and terminals are written directly. */
export function logOutput(): { write(line: string): void } {
  const stat = fstatSync(STDERR)
  return stat.isFIFO() || stat.isSocket() ? (buffered ??= new BufferedStderr()) : process.stderr
}
