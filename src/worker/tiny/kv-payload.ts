/**
 * Keys and values as they travel between workers: a head that says of which model and which prompt they are, then float32 planes
 * [planes][tokens][head width], of each layer the keys of its heads and the values of its heads, bit for bit as they were computed.
 * Nothing is written before all of it has been checked.
 *
 *   0  'EKVT'   4  version   8  planes   12  bytes of a token and plane   16  tokens   20  crc32 of the data      (uint32, little-endian)
 *   24  sha256 of the model   56  sha256 of the token ids   88  data
 */
import { createHash } from 'node:crypto'
import { crc32 } from 'node:zlib'
import type { Forward } from './forward.ts'

const MAGIC = 0x54564b45
const VERSION = 1
const HEAD_BYTES = 88

export function exportKv(
  forward: Forward,
  layers: number,
  fingerprint: Buffer,
  ids: Int32Array,
  blocks: ArrayLike<number>,
  tokens: number,
): Uint8Array {
  const { layout } = forward
  const planes = layers * layout.kvPlanes
  const payload = Buffer.alloc(HEAD_BYTES + planes * tokens * layout.kvRowBytes)
  const memory = new Uint8Array(forward.kernel.buffer)
  let to = HEAD_BYTES
  for (let plane = 0; plane < planes; plane++) {
    for (let t = 0; t < tokens; t++, to += layout.kvRowBytes) {
      const at = rowAt(forward, plane, blocks, t)
      payload.set(memory.subarray(at, at + layout.kvRowBytes), to)
    }
  }
  headOf(planes, layout.kvRowBytes, tokens, crc32(payload.subarray(HEAD_BYTES)), fingerprint, ids).copy(
    payload,
  )
  return payload
}

/** Writes tokens from `from` on. Throws, having written nothing, when it is not the KV of these ids under this model. */
export function importKv(
  forward: Forward,
  layers: number,
  fingerprint: Buffer,
  bytes: Uint8Array,
  ids: Int32Array,
  from: number,
  tokens: number,
  blocks: ArrayLike<number>,
): void {
  const { layout } = forward
  const planes = layers * layout.kvPlanes
  const payload = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const length = HEAD_BYTES + planes * tokens * layout.kvRowBytes
  if (payload.length !== length)
    throw new Error(`The KV that came has ${payload.length} bytes, not the ${length} of ${tokens} tokens`)
  const head = headOf(
    planes,
    layout.kvRowBytes,
    tokens,
    crc32(payload.subarray(HEAD_BYTES)),
    fingerprint,
    ids,
  )
  const parts = {
    'a KV payload of this release': [0, 8],
    [`${tokens} tokens of ${layers} layers`]: [8, 20],
    'whole: its checksum is another': [20, 24],
    'of this model': [24, 56],
    'of this prompt': [56, 88],
  }
  for (const [what, [begin, end]] of Object.entries(parts)) {
    if (!head.subarray(begin, end).equals(payload.subarray(begin, end)))
      throw new Error(`The KV that came is not ${what}`)
  }
  const memory = new Uint8Array(forward.kernel.buffer)
  for (let plane = 0; plane < planes; plane++) {
    for (let t = from; t < tokens; t++) {
      const at = HEAD_BYTES + (plane * tokens + t) * layout.kvRowBytes
      memory.set(payload.subarray(at, at + layout.kvRowBytes), rowAt(forward, plane, blocks, t))
    }
  }
}

/** Planes are counted over all layers. */
function rowAt(forward: Forward, plane: number, blocks: ArrayLike<number>, token: number): number {
  const { kv, kvPlaneBytes, kvRowBytes } = forward.layout
  return kv + plane * kvPlaneBytes + forward.slotOf(blocks, token) * kvRowBytes
}

function headOf(
  planes: number,
  rowBytes: number,
  tokens: number,
  checksum: number,
  fingerprint: Buffer,
  ids: Int32Array,
): Buffer {
  const head = Buffer.alloc(HEAD_BYTES)
  const numbers = [MAGIC, VERSION, planes, rowBytes, tokens, checksum]
  numbers.forEach((number, i) => head.writeUInt32LE(number, 4 * i))
  fingerprint.copy(head, 24)
  const own = ids.subarray(0, tokens)
  createHash('sha256')
    .update(Buffer.from(own.buffer, own.byteOffset, own.byteLength))
    .digest()
    .copy(head, 56)
  return head
}
