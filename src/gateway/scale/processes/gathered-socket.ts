/** A socket that frames are written to: all of a turn of the event loop in one write. */
import type { Socket } from 'node:net'
import { type Frame, FrameReader, FrameWriter } from './frames.ts'

export class GatheredSocket {
  readonly #socket: Socket
  readonly #writer = new FrameWriter()
  #due = false

  /** `take` may throw a RangeError when a frame is not as it should be: that ends the connection, as all that is no frame does. */
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
      // What was answered goes at once: nothing more comes of this chunk.
      this.flush()
    })
  }

  /** Write a whole frame, with `begin` and `end`. It goes soon, with those that come in the same turn. */
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
