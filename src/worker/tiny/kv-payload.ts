/**
 * Wire format of keys and values: a header that identifies the model and the prompt, then float32 planes
 * [planes][tokens that are sent][head width], for each layer the keys of its heads and the values of its
 * heads, bit for bit as computed. Nothing is written before everything has been checked.
 *
 *     0  'EKVT'   4  version   8  planes   12  bytes per token and plane   16  tokens   20  crc32 of the data
 *     24  sha256 of the model   56  sha256 of the token ids   88  data      (uint32, little-endian)
 */
import { createHash } from 'node:crypto'
import { crc32 } from 'node:zlib'
import type { KvTarget } from '../types.ts'
import type { Forward } from './forward.ts'

const MAGIC = 0x54564b45
const VERSION = 1
const HEAD_BYTES = 88

/** A model and its memory. */
export interface KvModel {
  readonly forward: Forward
  readonly layers: number
  readonly fingerprint: Buffer
}

/** The KV of tokens `from` to `tokens`. */
export function exportKv(model: KvModel, { ids, from, tokens, blocks }: KvTarget): Uint8Array {
  const { forward, layers } = model
  const { layout } = forward
  const planes = layers * layout.kvPlanes
  const payload = Buffer.alloc(HEAD_BYTES + planes * (tokens - from) * layout.kvRowBytes)
  const memory = new Uint8Array(forward.kernel.buffer)
  let to = HEAD_BYTES
  for (let plane = 0; plane < planes; plane++) {
    for (let t = from; t < tokens; t++, to += layout.kvRowBytes) {
      const at = rowAt(forward, plane, blocks, t)
      payload.set(memory.subarray(at, at + layout.kvRowBytes), to)
    }
  }
  headOf(model, tokens, crc32(payload.subarray(HEAD_BYTES)), ids).copy(payload)
  return payload
}

/**
 * Writes tokens `from` to `tokens`. Throws, having written nothing, if it is not the KV of these ids for this
 * model.
 */
export function importKv(model: KvModel, bytes: Uint8Array, { ids, from, tokens, blocks }: KvTarget): void {
  const { forward, layers } = model
  const { layout } = forward
  const planes = layers * layout.kvPlanes
  const payload = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const length = HEAD_BYTES + planes * (tokens - from) * layout.kvRowBytes
  if (payload.length !== length)
    throw new Error(
      `The received KV has ${payload.length} bytes, expected ${length} for tokens ${from} to ${tokens}`,
    )
  const head = headOf(model, tokens, crc32(payload.subarray(HEAD_BYTES)), ids)
  const parts = {
    'is not a payload of this release': [0, 8],
    [`is not that of ${tokens} tokens of ${layers} layers`]: [8, 20],
    'has a wrong checksum': [20, 24],
    'belongs to another model': [24, 56],
    'belongs to another prompt': [56, 88],
  }
  for (const [what, [begin, end]] of Object.entries(parts)) {
    if (!head.subarray(begin, end).equals(payload.subarray(begin, end)))
      throw new Error(`The received KV ${what}`)
  }
  const memory = new Uint8Array(forward.kernel.buffer)
  for (let plane = 0; plane < planes; plane++) {
    for (let t = from; t < tokens; t++) {
      const at = HEAD_BYTES + (plane * (tokens - from) + t - from) * layout.kvRowBytes
      memory.set(payload.subarray(at, at + layout.kvRowBytes), rowAt(forward, plane, blocks, t))
    }
  }
}

/** Planes are numbered over all layers. */
function rowAt(forward: Forward, plane: number, blocks: ArrayLike<number>, token: number): number {
  const { kv, kvPlaneBytes, kvRowBytes } = forward.layout
  return kv + plane * kvPlaneBytes + forward.slotOf(blocks, token) * kvRowBytes
}

function headOf(
  { forward: { layout }, layers, fingerprint }: KvModel,
  tokens: number,
  checksum: number,
  ids: Int32Array,
): Buffer {
  const head = Buffer.alloc(HEAD_BYTES)
  const numbers = [MAGIC, VERSION, layers * layout.kvPlanes, layout.kvRowBytes, tokens, checksum]
  numbers.forEach((number, i) => head.writeUInt32LE(number, 4 * i))
  fingerprint.copy(head, 24)
  const own = ids.subarray(0, tokens)
  createHash('sha256')
    .update(Buffer.from(own.buffer, own.byteOffset, own.byteLength))
    .digest()
    .copy(head, 56)
  return head
}
