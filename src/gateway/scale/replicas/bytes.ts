/** Reads and writes the bytes of messages between replicas. The reader checks every bound. */

export class ByteWriter {
  #bytes = Buffer.allocUnsafe(1024)
  #size = 0

  byte(value: number): void {
    this.#room(1)
    this.#bytes[this.#size++] = value
  }

  /** LEB128: seven bits per byte, lowest first. Up to 2^53 − 1. */
  varint(value: number): void {
    this.#room(8)
    let rest = value
    for (; rest >= 128; rest = Math.floor(rest / 128)) this.#bytes[this.#size++] = 128 | (rest % 128)
    this.#bytes[this.#size++] = rest
  }

  fixed(value: number, bytes: 4 | 6): void {
    this.#room(bytes)
    this.#size = this.#bytes.writeUIntLE(value, this.#size, bytes)
  }

  /** Prefixed with its length. */
  block(bytes: Uint8Array): void {
    this.varint(bytes.length)
    this.#room(bytes.length)
    this.#bytes.set(bytes, this.#size)
    this.#size += bytes.length
  }

  text(text: string): void {
    this.block(Buffer.from(text))
  }

  done(): Buffer {
    return this.#bytes.subarray(0, this.#size)
  }

  #room(bytes: number): void {
    if (this.#size + bytes <= this.#bytes.length) return
    const larger = Buffer.allocUnsafe(2 * (this.#size + bytes))
    this.#bytes.copy(larger, 0, 0, this.#size)
    this.#bytes = larger
  }
}

/** Thrown for malformed bytes. Caught within this folder. */
export class Malformed extends Error {}

export class ByteReader {
  readonly #bytes: Buffer
  #at = 0

  constructor(bytes: Buffer) {
    this.#bytes = bytes
  }

  byte(): number {
    return this.#bytes[this.#take(1)]!
  }

  varint(max = Number.MAX_SAFE_INTEGER): number {
    let value = 0
    for (let scale = 1; ; scale *= 128) {
      const byte = this.byte()
      value += (byte & 127) * scale
      if (value > max || scale > 2 ** 49) throw new Malformed('a number is too large')
      if (byte < 128) return value
    }
  }

  fixed(bytes: 4 | 6): number {
    return this.#bytes.readUIntLE(this.#take(bytes), bytes)
  }

  block(maxBytes: number): Buffer {
    const length = this.varint(maxBytes)
    const at = this.#take(length)
    return this.#bytes.subarray(at, at + length)
  }

  text(maxBytes: number): string {
    return this.block(maxBytes).toString()
  }

  end(): void {
    if (this.#at !== this.#bytes.length) throw new Malformed('bytes are left over')
  }

  #take(bytes: number): number {
    const at = this.#at
    if (at + bytes > this.#bytes.length) throw new Malformed('the message ends too early')
    this.#at = at + bytes
    return at
  }
}
