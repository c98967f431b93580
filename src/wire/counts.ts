import { base64Length, decodeBase64 } from './base64.ts'

/**
 * The `eldr` object of `kv_transfer_params`: expert counts of a prompt in a prefill worker's hand-off. JSON
 * as sent.
 */
export interface WireCounts {
  readonly v: 1
  /** MoE layers of the model, by ascending layer id, and logical experts per layer. */
  readonly layers: number
  readonly experts: number
  readonly top_k: number
  /** Tokens of the prompt, and how many of them the counts cover. */
  readonly tokens: number
  readonly covered: number
  /** Every count was shifted right by this many bits; 0 unless a prompt is too long for 16 bits. */
  readonly shift: number
  /** Base64 of little-endian u16 [layer][expert]: covered tokens routed to the expert. */
  readonly counts: string
  /**
   * The same in 256ths, never shifted: a token at distance d from the last one has weight 2^(−d/half_life).
   */
  readonly recent?: string
  readonly half_life?: number
}

/** Why counts are rejected. Operators see these as metric labels, so they are few and fixed. */
export const REJECTS = [
  'missing',
  'wrong_version',
  'wrong_shape',
  'wrong_model',
  'bad_base64',
  'bad_sums',
  'too_little_covered',
  'bad_value',
] as const
export type Reject = (typeof REJECTS)[number]

/** What the artifact and the settings require of a hand-off. */
export interface ExpectedCounts {
  readonly layers: number
  readonly experts: number
  readonly topK: number
  /** Minimum share of the prompt's tokens. */
  readonly minCovered: number
  /** Half-life of the recent counts to read; absent if none are needed. */
  readonly recentHalfLife?: number
}

/** Validated counts. */
export interface HandoffCounts {
  /** [layers × experts], shifted as received: signatures do not depend on the scale. */
  readonly counts: Uint16Array
  /** Absent if not requested, not sent, or of another half-life; then a signature of plain counts is used. */
  readonly recent?: Float32Array
  readonly tokens: number
  readonly covered: number
}

export type CountsOrReject = HandoffCounts | { readonly reject: Reject }

/** A worker's counts before encoding. */
export interface CapturedCounts {
  readonly layers: number
  readonly experts: number
  readonly topK: number
  readonly tokens: number
  readonly covered: number
  readonly counts: ArrayLike<number>
  readonly recent?: { readonly values: ArrayLike<number>; readonly halfLife: number }
}

/** With a longer half-life, recent counts could exceed 16 bits: 256 · Σ 2^(−d/178) > 65,535. */
export const MAX_HALF_LIFE = 177
const RECENT_UNITS = 256
const MAX_TOKENS = 2 ** 31 - 1

export function encodeCounts({
  layers,
  experts,
  topK,
  tokens,
  covered,
  counts,
  recent,
}: CapturedCounts): WireCounts {
  const { values, shift } = toU16(counts)
  const encoded = {
    v: 1,
    layers,
    experts,
    top_k: topK,
    tokens,
    covered,
    shift,
    counts: encodeU16(values),
  } as const
  if (recent === undefined) return encoded
  const units = new Uint16Array(recent.values.length)
  // Halves round up in every implementation: with a half-life of 1 the token at distance 9 is half a unit.
  for (let c = 0; c < units.length; c++) units[c] = Math.floor(recent.values[c]! * RECENT_UNITS + 0.5)
  return { ...encoded, recent: encodeU16(units), half_life: recent.halfLife }
}

/** Counts in 16 bits, shifted right as far as the largest requires. */
export function toU16(counts: ArrayLike<number>): { readonly values: Uint16Array; readonly shift: number } {
  let largest = 0
  for (let c = 0; c < counts.length; c++) largest = Math.max(largest, counts[c]!)
  let shift = 0
  while (largest >> shift > 0xffff) shift++
  const values = new Uint16Array(counts.length)
  for (let c = 0; c < values.length; c++) values[c] = counts[c]! >> shift
  return { values, shift }
}

/**
 * Cells of base64 little-endian u16 in their own, aligned array; undefined unless the text has exactly that
 * length and is canonical.
 */
export function decodeCounts(text: string, cells: number): Uint16Array | undefined {
  // Text of another length is rejected before anything is allocated.
  if (text.length !== base64Length(2 * cells)) return undefined
  const counts = new Uint16Array(cells)
  return decodeBase64(text, bytesOf(counts)) ? counts : undefined
}

/**
 * Counts of a hand-off, or why they cannot be used; then the request is routed by load. Any value may arrive,
 * since workers are other programs and versions; never throws.
 */
export function readHandoffCounts(value: unknown, expected: ExpectedCounts): CountsOrReject {
  if (value === undefined || value === null) return { reject: 'missing' }
  if (typeof value !== 'object') return { reject: 'bad_value' }
  const {
    v,
    layers,
    experts,
    top_k,
    tokens,
    covered,
    shift,
    counts: text,
    recent,
    half_life,
  } = value as Partial<Record<keyof WireCounts, unknown>>
  // A plugin fills the object when the engine's step ends, and leaves it empty for a request that it could
  // not follow.
  if (v === undefined && text === undefined) return { reject: 'missing' }
  if (v !== 1) return { reject: 'wrong_version' }
  if (layers !== expected.layers || experts !== expected.experts) return { reject: 'wrong_shape' }
  if (top_k !== expected.topK) return { reject: 'wrong_model' }
  if (!isUpTo(tokens, MAX_TOKENS) || tokens === 0 || !isUpTo(covered, tokens) || !isUpTo(shift, 15))
    return { reject: 'bad_value' }
  // A count is at most `covered`. With a needless shift, the truncation allowed below would let any counts
  // pass.
  if (shift > 0 && covered < 2 ** (15 + shift)) return { reject: 'bad_value' }
  if (covered < expected.minCovered * tokens) return { reject: 'too_little_covered' }
  if (typeof text !== 'string') return { reject: text === undefined ? 'missing' : 'bad_value' }
  const counts = decodeCounts(text, expected.layers * expected.experts)
  if (counts === undefined) return { reject: 'bad_base64' }
  const max = expected.topK * covered
  if (!sumsWithin(counts, expected, max / 2 ** shift, (max - experts * (2 ** shift - 1)) / 2 ** shift))
    return { reject: 'bad_sums' }
  if (expected.recentHalfLife === undefined || recent === undefined || recent === null)
    return { counts, tokens, covered }
  if (typeof half_life !== 'number' || !(half_life >= 1 && half_life <= MAX_HALF_LIFE))
    return { reject: 'bad_value' }
  if (half_life !== expected.recentHalfLife) return { counts, tokens, covered }
  if (typeof recent !== 'string') return { reject: 'bad_value' }
  const units = decodeCounts(recent, counts.length)
  if (units === undefined) return { reject: 'bad_base64' }
  // Which tokens are covered is not known; they weigh most if they are the last ones. Each cell is rounded,
  // and a sum on a GPU is slightly off before that.
  if (
    !sumsWithin(units, expected, expected.topK * RECENT_UNITS * weightOfLast(covered, half_life) + experts, 0)
  )
    return { reject: 'bad_sums' }
  const values = new Float32Array(units.length)
  for (let c = 0; c < units.length; c++) values[c] = units[c]! / RECENT_UNITS
  return { counts, recent: values, tokens, covered }
}

/** Σ 2^(−d/halfLife) for d below `tokens`. */
const weightOfLast = (tokens: number, halfLife: number): number =>
  (1 - 2 ** (-tokens / halfLife)) / (1 - 2 ** (-1 / halfLife))

function sumsWithin(
  values: Uint16Array,
  { layers, experts }: ExpectedCounts,
  max: number,
  least: number,
): boolean {
  for (let layer = 0, at = 0; layer < layers; layer++) {
    let sum = 0
    for (const end = at + experts; at < end; at++) sum += values[at]!
    if (sum > max || sum < least) return false
  }
  return true
}

const isUpTo = (value: unknown, max: number): value is number =>
  Number.isInteger(value) && (value as number) >= 0 && (value as number) <= max

// As the host writes them: little-endian on every platform of Node but s390x, which is not supported.
const bytesOf = (values: Uint16Array): Uint8Array =>
  new Uint8Array(values.buffer, values.byteOffset, values.byteLength)

const encodeU16 = (values: Uint16Array): string => Buffer.from(bytesOf(values)).toString('base64')
