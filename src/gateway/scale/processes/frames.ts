/**
 * Frames between the relays and the owner: length, kind, number and a sequence of values. The writer collects
 * frames for one write; the reader reads values in the order in which they were written. Both sides are the
 * same build on the same machine, so there are no versions. A frame that is too long or too short closes the
 * connection.
 */
const HEAD_BYTES = 9
/** A hand-off may have counts of many layers and routed experts as well. */
export const MAX_FRAME_BYTES = 256 << 20
const FIRST_BYTES = 16 << 10

export class FrameWriter {
  #bytes = Buffer.allocUnsafeSlow(FIRST_BYTES)
  #length = 0
  #frameStart = 0

  get isEmpty(): boolean {
    return this.#length === 0
  }

  begin(kind: number, id: number): this {
    this.#frameStart = this.#length
    this.#room(HEAD_BYTES)
    this.#bytes[this.#length + 4] = kind
    this.#bytes.writeUInt32LE(id, this.#length + 5)
    this.#length += HEAD_BYTES
    return this
  }

  byte(value: number): this {
    this.#room(1)
    this.#bytes[this.#length++] = value
    return this
  }

  /** A double. */
  number(value: number): this {
    this.#room(8)
    this.#length = this.#bytes.writeDoubleLE(value, this.#length)
    return this
  }

  text(value: string): this {
    // UTF-8 takes at most three bytes per UTF-16 unit.
    this.#room(4 + 3 * value.length)
    const bytes = this.#bytes.write(value, this.#length + 4, 'utf8')
    this.#bytes.writeUInt32LE(bytes, this.#length)
    this.#length += 4 + bytes
    return this
  }

  bytes(value: Uint8Array): this {
    this.#room(4 + value.length)
    this.#bytes.writeUInt32LE(value.length, this.#length)
    this.#bytes.set(value, this.#length + 4)
    this.#length += 4 + value.length
    return this
  }

  texts(values: ReadonlySet<string>): this {
    this.number(values.size)
    for (const value of values) this.text(value)
    return this
  }

  end(): void {
    this.#bytes.writeUInt32LE(this.#length - this.#frameStart - 4, this.#frameStart)
  }

  /** Returns all frames and empties the writer. */
  take(): Buffer {
    const taken = Buffer.from(this.#bytes.subarray(0, this.#length))
    this.clear()
    return taken
  }

  clear(): void {
    this.#length = 0
    // Do not keep the memory of one large hand-off.
    if (this.#bytes.length > 1 << 20) this.#bytes = Buffer.allocUnsafeSlow(FIRST_BYTES)
  }

  #room(bytes: number): void {
    const needed = this.#length + bytes
    if (needed <= this.#bytes.length) return
    const larger = Buffer.allocUnsafeSlow(Math.max(needed, 2 * this.#bytes.length))
    this.#bytes.copy(larger, 0, 0, this.#length)
    this.#bytes = larger
  }
}

/** A frame, with its values in order. Reading past its end throws a RangeError. */
export class Frame {
  readonly kind: number
  readonly id: number
  readonly #bytes: Buffer
  #at = HEAD_BYTES

  /** `bytes` include the length. */
  constructor(bytes: Buffer) {
    this.#bytes = bytes
    this.kind = bytes[4]!
    this.id = bytes.readUInt32LE(5)
  }

  byte(): number {
    return this.#bytes.readUInt8(this.#at++)
  }

  number(): number {
    this.#at += 8
    return this.#bytes.readDoubleLE(this.#at - 8)
  }

  text(): string {
    return this.bytes().toString('utf8')
  }

  bytes(): Buffer {
    const [start, end] = [this.#at + 4, this.#at + 4 + this.#bytes.readUInt32LE(this.#at)]
    if (end > this.#bytes.length) throw new RangeError('a value is longer than its frame')
    this.#at = end
    return this.#bytes.subarray(start, end)
  }

  texts(): Set<string> {
    const values = new Set<string>()
    for (let left = this.number(); left > 0; left--) values.add(this.text())
    return values
  }
}

export class FrameReader {
  #kept: Buffer[] = []
  #keptBytes = 0
  #needed = 4

  /** Calls `take` with each complete frame. Throws a RangeError if the bytes are not a frame. */
  push(chunk: Buffer, take: (frame: Frame) => void): void {
    this.#kept.push(chunk)
    this.#keptBytes += chunk.length
    if (this.#keptBytes < this.#needed) return
    const bytes = this.#kept.length === 1 ? chunk : Buffer.concat(this.#kept)
    let at = 0
    this.#needed = 4
    while (bytes.length - at >= 4) {
      const length = bytes.readUInt32LE(at)
      if (length < HEAD_BYTES - 4 || length > MAX_FRAME_BYTES)
        throw new RangeError(`invalid frame length: ${length} bytes`)
      const end = at + 4 + length
      if (end > bytes.length) {
        this.#needed = 4 + length
        break
      }
      take(new Frame(bytes.subarray(at, end)))
      at = end
    }
    const rest = bytes.subarray(at)
    this.#kept = rest.length === 0 ? [] : [rest]
    this.#keptBytes = rest.length
  }
}
