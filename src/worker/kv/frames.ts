/**
 * The language of the KV side channel: frames with a fixed head, in both directions of one TCP connection. A head names the version, so
 * that workers of different releases refuse each other instead of misreading, and carries the length and the checksum of what follows.
 *
 *   0  'ELKV'   4  version u8   5  type u8   6  zero u16   8  length u32   12  crc32 of the payload u32      (little-endian)
 */
import { crc32 } from 'node:zlib'

export const KV_VERSION = 1
export const HEAD_BYTES = 16
/** Of the payloads of data frames; all others are small. */
export const DATA_BYTES = 1 << 20
/** Requests and answers are a few names and numbers; a list of block ids is the longest. */
export const MOST_TEXT_BYTES = 4 << 20

/** From decode: read, acknowledge, renew, release. From prefill: what comes, data, done, failure. */
export const FRAME = {
  read: 1,
  acknowledge: 2,
  renew: 3,
  release: 4,
  coming: 16,
  data: 17,
  done: 18,
  failure: 19,
} as const
export type FrameName = keyof typeof FRAME

export interface Frame {
  readonly type: FrameName
  readonly payload: Buffer
}

const MAGIC = Buffer.from('ELKV', 'latin1')
const NAMES: ReadonlyMap<number, FrameName> = new Map(
  (Object.keys(FRAME) as FrameName[]).map(name => [FRAME[name], name]),
)

export class FrameError extends Error {
  override name = 'FrameError'
}

export function frameOf(type: FrameName, payload: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(HEAD_BYTES + payload.length)
  writeHead(frame, type, payload)
  frame.set(payload, HEAD_BYTES)
  return frame
}

/** Of a payload that is sent after it, so that large ones are not copied. */
export function headOf(type: FrameName, payload: Uint8Array): Buffer {
  const head = Buffer.allocUnsafe(HEAD_BYTES)
  writeHead(head, type, payload)
  return head
}

export function textFrame(type: FrameName, value: object): Buffer {
  return frameOf(type, Buffer.from(JSON.stringify(value)))
}

function writeHead(out: Buffer, type: FrameName, payload: Uint8Array): void {
  MAGIC.copy(out)
  out[4] = KV_VERSION
  out[5] = FRAME[type]
  out.writeUInt16LE(0, 6)
  out.writeUInt32LE(payload.length, 8)
  out.writeUInt32LE(crc32(payload), 12)
}

/** The payload of a frame as an object; throws FrameError. */
export function objectIn({ type, payload }: Frame): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(payload.toString('utf8'))
    if (typeof value === 'object' && value !== null && !Array.isArray(value))
      return value as Record<string, unknown>
  } catch {
    // Said below.
  }
  throw new FrameError(`the payload of a ${type} frame is no JSON object`)
}

/** Puts frames together from bytes that come in pieces. What is no frame throws FrameError, and nothing can be read after it. */
export class FrameReader {
  readonly #mostBytes: number
  #kept: Buffer[] = []
  #keptBytes = 0

  /** `mostBytes` of a payload: a larger one is refused by its head, before it is waited for. */
  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes
  }

  /** Frames that these bytes complete, in their order. */
  *push(chunk: Buffer): Generator<Frame> {
    this.#kept.push(chunk)
    this.#keptBytes += chunk.length
    while (this.#keptBytes >= HEAD_BYTES) {
      const head = this.#look(HEAD_BYTES)
      const { type, length, sum } = readHead(head, this.#mostBytes)
      if (this.#keptBytes < HEAD_BYTES + length) return
      const payload = this.#look(HEAD_BYTES + length).subarray(HEAD_BYTES, HEAD_BYTES + length)
      if (crc32(payload) !== sum) throw new FrameError(`the checksum of a ${type} frame is wrong`)
      this.#drop(HEAD_BYTES + length)
      yield { type, payload }
    }
  }

  /** True while a frame has begun and not ended. */
  get amid(): boolean {
    return this.#keptBytes > 0
  }

  /** At least the first `bytes` of what is kept, in one piece. Pieces are joined once a frame at most, when it is whole. */
  #look(bytes: number): Buffer {
    if (this.#kept[0]!.length < bytes) this.#kept = [Buffer.concat(this.#kept)]
    return this.#kept[0]!
  }

  #drop(bytes: number): void {
    const rest = this.#kept[0]!.subarray(bytes)
    this.#keptBytes -= bytes
    this.#kept = rest.length > 0 ? [rest, ...this.#kept.slice(1)] : this.#kept.slice(1)
  }
}

function readHead(head: Buffer, mostBytes: number): { type: FrameName; length: number; sum: number } {
  if (head.compare(MAGIC, 0, 4, 0, 4) !== 0) throw new FrameError('these bytes are no frame')
  if (head[4] !== KV_VERSION) throw new FrameError(`version ${head[4]} is spoken there, ${KV_VERSION} here`)
  const type = NAMES.get(head[5]!)
  if (type === undefined) throw new FrameError(`frames of type ${head[5]} are unknown`)
  const length = head.readUInt32LE(8)
  if (length > mostBytes) throw new FrameError(`a ${type} frame of ${length} bytes is too long`)
  return { type, length, sum: head.readUInt32LE(12) }
}
