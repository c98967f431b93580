/** A socket for frames. All frames of a turn of the event loop go out in one write. */
import type { Socket } from 'node:net'
import { type Frame, FrameReader, FrameWriter } from './frames.ts'

export class GatheredSocket {
  readonly #socket: Socket
  readonly #writer = new FrameWriter()
  #due = false

  /**
   * `take` may throw a RangeError for an invalid frame: that closes the connection, as bytes that are no
   * frame do.
   */
  constructor(socket: Socket, take: (frame: Frame) => void) {
    this.#socket = socket
    const reader = new FrameReader()
    socket.on('data', (chunk: Buffer) => {
      try {
        reader.push(chunk, take)
      } catch (error) {
        socket.destroy(error instanceof RangeError ? error : undefined)
        if (!(error instanceof RangeError)) throw error
      }
      // Send responses immediately: this chunk is finished.
      this.flush()
    })
  }

  /** Write a whole frame, with `begin` and `end`. It is sent at the end of this turn of the event loop. */
  get writer(): FrameWriter {
    if (!this.#due) {
      this.#due = true
      setImmediate(() => this.flush())
    }
    return this.#writer
  }

  flush(): void {
    this.#due = false
    if (this.#writer.isEmpty) return
    if (this.#socket.writable) this.#socket.write(this.#writer.take())
    else this.#writer.clear()
  }

  close(): void {
    this.flush()
    this.#socket.destroySoon()
  }
}
