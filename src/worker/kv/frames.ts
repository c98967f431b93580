/**
 * Protocol of the KV side channel: frames with a fixed header, in both directions of one TCP connection. The
 * header contains the version, so workers of different releases refuse each other instead of misreading, and
 * the length and checksum of the payload.
 *
 *     0  'ELKV'   4  version u8   5  type u8   6  zero u16   8  length u32   12  crc32 of the payload u32
 *     (little-endian)
 */
import { crc32 } from 'node:zlib'

export const KV_VERSION = 1
export const HEAD_BYTES = 16
/** Payload size of data frames; all others are small. */
export const DATA_BYTES = 1 << 20
/** Requests and responses are a few names and numbers; a list of block ids is the longest. */
export const MAX_TEXT_BYTES = 4 << 20

/**
 * From the decode worker: read, acknowledge, renew, release. From the prefill worker: coming, data, done,
 * failure.
 */
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

/** Header of a payload that is sent separately, so that large payloads are not copied. */
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
    // Reported below.
  }
  throw new FrameError(`the payload of a ${type} frame is not a JSON object`)
}

/**
 * Assembles frames from chunks of bytes. Invalid bytes throw FrameError, and nothing can be read after that.
 */
export class FrameReader {
  readonly #maxBytes: number
  #kept: Buffer[] = []
  #keptBytes = 0

  /** `maxBytes` of a payload: a larger frame is refused when its header arrives. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  /** Frames completed by these bytes, in order. */
  *push(chunk: Buffer): Generator<Frame> {
    this.#kept.push(chunk)
    this.#keptBytes += chunk.length
    while (this.#keptBytes >= HEAD_BYTES) {
      const head = this.#look(HEAD_BYTES)
      const { type, length, sum } = readHead(head, this.#maxBytes)
      if (this.#keptBytes < HEAD_BYTES + length) return
      const payload = this.#look(HEAD_BYTES + length).subarray(HEAD_BYTES, HEAD_BYTES + length)
      if (crc32(payload) !== sum) throw new FrameError(`the checksum of a ${type} frame is wrong`)
      this.#drop(HEAD_BYTES + length)
      yield { type, payload }
    }
  }

  /** True while a frame is incomplete. */
  get isIncomplete(): boolean {
    return this.#keptBytes > 0
  }

  /**
   * At least the first `bytes` of the buffered data in one piece. Chunks are joined at most once per frame,
   * when it is complete.
   */
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

function readHead(head: Buffer, maxBytes: number): { type: FrameName; length: number; sum: number } {
  if (head.compare(MAGIC, 0, 4, 0, 4) !== 0) throw new FrameError('not a frame')
  if (head[4] !== KV_VERSION)
    throw new FrameError(`the peer uses version ${head[4]}, this worker ${KV_VERSION}`)
  const type = NAMES.get(head[5]!)
  if (type === undefined) throw new FrameError(`unknown frame type ${head[5]}`)
  const length = head.readUInt32LE(8)
  if (length > maxBytes) throw new FrameError(`a ${type} frame of ${length} bytes is too long`)
  return { type, length, sum: head.readUInt32LE(12) }
}
