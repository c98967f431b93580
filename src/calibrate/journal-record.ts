/**
 * Records of a journal, little-endian: length of the payload u32, its crc32 u32, the payload. A payload
 * begins with its kind and the index of the request; counts and ids follow fixed fields, so that each can be
 * read alone. A truncated or damaged record does not count.
 */
import { crc32 } from 'node:zlib'
import { type Captured, idBytes, type ModelShape, type Skip, SKIPS } from './captured.ts'

export const FRAME_BYTES = 8
/** Kind, request, tokens, covered, steps, layers, experts, topK as u32, half-life as f64. */
export const FIXED_BYTES = 40
const SKIP_BYTES = 12
const [CAPTURED, SKIPPED] = [1, 2]
/** Above any real payload, so that a damaged length is not allocated. */
export const MAX_PAYLOAD = 2 ** 30

export interface CapturedHead extends ModelShape {
  readonly request: number
  readonly tokens: number
  readonly covered: number
  readonly steps: number
}
export type RecordHead =
  | (CapturedHead & { readonly skip?: undefined })
  | { readonly request: number; readonly skip: Skip }

export function encodeCaptured(request: number, captured: Captured): Buffer {
  const { tokens, covered, steps, layers, experts, topK, halfLife, counts, recent, ids } = captured
  const { countsAt, recentAt, idsAt, end } = sectionsOf(captured)
  const record = Buffer.alloc(FRAME_BYTES + end)
  const payload = record.subarray(FRAME_BYTES)
  ;[CAPTURED, request, tokens, covered, steps, layers, experts, topK].forEach((value, i) =>
    payload.writeUInt32LE(value!, 4 * i),
  )
  payload.writeDoubleLE(halfLife, 32)
  payload.set(bytesOf(counts), countsAt)
  if (recent !== undefined) payload.set(bytesOf(recent), recentAt)
  payload.set(bytesOf(idBytes(experts) === 1 ? Uint8Array.from(ids) : Uint16Array.from(ids)), idsAt)
  return framed(record)
}

export function encodeSkipped(request: number, skip: Skip): Buffer {
  const record = Buffer.alloc(FRAME_BYTES + SKIP_BYTES)
  ;[SKIPPED, request, SKIPS.indexOf(skip)].forEach((value, i) =>
    record.writeUInt32LE(value!, FRAME_BYTES + 4 * i),
  )
  return framed(record)
}

function framed(record: Buffer): Buffer {
  const payload = record.subarray(FRAME_BYTES)
  record.writeUInt32LE(payload.length, 0)
  record.writeUInt32LE(crc32(payload), 4)
  return record
}

/** Returns undefined for a damaged payload. */
export function readHead(payload: Buffer, sum: number): RecordHead | undefined {
  if (crc32(payload) !== sum || payload.length < SKIP_BYTES) return undefined
  const u32 = (i: number) => payload.readUInt32LE(4 * i)
  if (u32(0) === SKIPPED) {
    const skip = SKIPS[u32(2)]
    return payload.length === SKIP_BYTES && skip !== undefined ? { request: u32(1), skip } : undefined
  }
  if (u32(0) !== CAPTURED || payload.length < FIXED_BYTES) return undefined
  const head = {
    request: u32(1),
    tokens: u32(2),
    covered: u32(3),
    steps: u32(4),
    layers: u32(5),
    experts: u32(6),
    topK: u32(7),
    halfLife: payload.readDoubleLE(32),
  }
  return sectionsOf(head).end === payload.length ? head : undefined
}

/** Offsets of counts, recent counts and ids in the payload, and its end. */
export function sectionsOf({
  layers,
  experts,
  topK,
  halfLife,
  steps,
}: Omit<CapturedHead, 'request' | 'tokens' | 'covered'>) {
  const recentAt = FIXED_BYTES + 2 * layers * experts
  const idsAt = recentAt + (halfLife > 0 ? 2 * layers * experts : 0)
  return { countsAt: FIXED_BYTES, recentAt, idsAt, end: idsAt + steps * layers * topK * idBytes(experts) }
}

// Host byte order: little-endian on all supported platforms.
const bytesOf = ({ buffer, byteOffset, byteLength }: Uint8Array | Uint16Array): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength)
