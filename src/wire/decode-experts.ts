import { base64Length, decodeBase64 } from './base64.ts'

/** The `decode` member of a calibration's `eldr` object: experts of the generated tokens. JSON as sent. */
export interface WireDecode {
  readonly steps: number
  readonly dtype: 'u8' | 'u16'
  /** Base64 of little-endian [step][layer][top_k]. */
  readonly ids: string
}

export interface DecodeShape {
  readonly layers: number
  readonly experts: number
  readonly topK: number
}

export interface DecodeExperts extends DecodeShape {
  readonly steps: number
  /** [steps][layers][topK] */
  readonly ids: Uint16Array
}

/** Limit for a calibration: the longest context of any model, all of it generated. */
const MAX_STEPS = 2 ** 24

/** One byte per id if the model has few enough experts. */
export function encodeDecodeExperts({ layers, experts, topK, steps, ids }: DecodeExperts): WireDecode {
  if (ids.length !== steps * layers * topK)
    throw new Error(`${ids.length} ids for ${steps} steps of ${layers} layers and ${topK} experts`)
  if (experts <= 256) return { steps, dtype: 'u8', ids: Buffer.from(ids).toString('base64') }
  const bytes = Buffer.alloc(2 * ids.length)
  for (let i = 0; i < ids.length; i++) bytes.writeUInt16LE(ids[i]!, 2 * i)
  return { steps, dtype: 'u16', ids: bytes.toString('base64') }
}

/** Undefined for anything else: any value may arrive. */
export function readDecodeExperts(
  value: unknown,
  { layers, experts, topK }: DecodeShape,
): DecodeExperts | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  const { steps, dtype, ids: text } = value as Partial<Record<keyof WireDecode, unknown>>
  if (typeof steps !== 'number' || !Number.isInteger(steps) || steps < 0 || steps > MAX_STEPS)
    return undefined
  if ((dtype !== 'u8' && dtype !== 'u16') || typeof text !== 'string') return undefined
  const [count, width] = [steps * layers * topK, dtype === 'u8' ? 1 : 2]
  // Text of another length is rejected before anything is allocated.
  if (text.length !== base64Length(count * width)) return undefined
  const bytes = new Uint8Array(count * width)
  if (!decodeBase64(text, bytes)) return undefined
  const ids = new Uint16Array(count)
  for (let i = 0; i < count; i++) {
    const id = width === 1 ? bytes[i]! : bytes[2 * i]! | (bytes[2 * i + 1]! << 8)
    if (id >= experts) return undefined
    ids[i] = id
  }
  return { layers, experts, topK, steps, ids }
}
