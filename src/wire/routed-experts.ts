/**
 * The second source of counts: vLLM's own `routed_experts` (`--enable-return-routed-experts`), base64 of a
 * .npy file [tokens, layers, top_k] of logical expert ids, one row per token except the last. vLLM rejects
 * the option together with today's PD connectors; servers that allow both need no plugin. Layers are those of
 * the model: a model with dense layers in between has another shape than its artifact.
 */
import { base64Length, decodeBase64 } from './base64.ts'
import { type CountsOrReject, type ExpectedCounts, toU16 } from './counts.ts'
import { NPY_HEADER_BYTES, type NpyValues, npyValues, readNpyHeader } from './npy.ts'

export interface ExpectedExperts extends ExpectedCounts {
  /** Tokens of the prompt according to the worker's `usage`; further rows are generated tokens. */
  readonly promptTokens: number
}

/** Never throws, and allocates no more than the text holds. */
export function readRoutedExperts(value: unknown, expected: ExpectedExperts): CountsOrReject {
  if (value === undefined || value === null) return { reject: 'missing' }
  const { layers, topK, promptTokens, minCovered } = expected
  if (typeof value !== 'string' || !(promptTokens > 0)) return { reject: 'bad_value' }
  const found = routedExpertsIn(value)
  if ('reject' in found) return found
  const { shape } = found
  const rows = shape[0] ?? 0
  if (shape.length !== 3 || shape[1] !== layers) return { reject: 'wrong_shape' }
  if (shape[2] !== topK) return { reject: 'wrong_model' }
  if (!found.isWhole) return { reject: 'bad_base64' }
  if (Math.min(rows, promptTokens) < minCovered * promptTokens) return { reject: 'too_little_covered' }
  const ids = found.values()
  return ids === undefined ? { reject: 'bad_base64' } : countIds(ids, Math.min(rows, promptTokens), expected)
}

export interface RoutedExpertsText {
  readonly shape: readonly number[]
  /** True if the text is as long as its header says. */
  readonly isWhole: boolean
  /** Undefined unless the text is complete and canonical. */
  values(): NpyValues | undefined
}

/** Base64 of a .npy file: reads the header now, the values on demand. */
export function routedExpertsIn(
  text: string,
): RoutedExpertsText | { readonly reject: 'bad_base64' | 'bad_value' } {
  const headText = text.slice(0, base64Length(NPY_HEADER_BYTES))
  const head = new Uint8Array(decodedLength(headText))
  if (!decodeBase64(headText, head)) return { reject: 'bad_base64' }
  const header = readNpyHeader(head)
  if (header === undefined) return { reject: 'bad_value' }
  const bytes = header.dataAt + header.dataBytes
  const isWhole = bytes === decodedLength(text)
  return {
    shape: header.shape,
    isWhole,
    values() {
      if (!isWhole) return undefined
      const file = new Uint8Array(bytes)
      return decodeBase64(text, file) ? npyValues(file, header) : undefined
    },
  }
}

/**
 * SGLang's format: base64 of little-endian int32 [tokens][layers][top_k] without a header. Undefined for
 * anything else.
 */
export function rawExpertsIn(text: string): Int32Array | undefined {
  const bytes = new Uint8Array(decodedLength(text))
  return bytes.length % 4 === 0 && decodeBase64(text, bytes) ? new Int32Array(bytes.buffer) : undefined
}

/** Bytes of base64 text with padding; 0 for any other text. */
function decodedLength(text: string): number {
  if (text.length % 4 !== 0) return 0
  return (text.length / 4) * 3 - (text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0)
}

function countIds(ids: NpyValues, rows: number, expected: ExpectedExperts): CountsOrReject {
  const { layers, experts, topK, promptTokens, minCovered, recentHalfLife } = expected
  const counted = new Uint32Array(layers * experts)
  const recent = recentHalfLife === undefined ? undefined : new Float64Array(layers * experts)
  let covered = 0
  for (let row = 0, at = 0; row < rows; row++) {
    if (!isCovered(ids, at, expected)) {
      at += layers * topK
      continue
    }
    covered++
    const weight = recentHalfLife === undefined ? 0 : 2 ** ((row + 1 - promptTokens) / recentHalfLife)
    for (let layer = 0; layer < layers; layer++) {
      for (const end = at + topK; at < end; at++) {
        const id = ids[at]!
        if (!(id >= 0 && id < experts)) return { reject: 'bad_value' }
        counted[layer * experts + id]!++
        if (recent !== undefined) recent[layer * experts + id]! += weight
      }
    }
  }
  if (covered < minCovered * promptTokens) return { reject: 'too_little_covered' }
  const counts = toU16(counted).values
  return {
    counts,
    recent: recent && Float32Array.from(recent),
    tokens: promptTokens,
    covered,
  }
}

/**
 * A token selects each expert once. Rows that were never written (tokens whose KV came from elsewhere) are
 * zeros or −1, so that two ids of a layer are equal: such a token is not covered.
 */
function isCovered(ids: NpyValues, from: number, { layers, topK }: ExpectedExperts): boolean {
  if (topK === 1) return ids[from]! >= 0
  for (let layer = 0, at = from; layer < layers; layer++, at += topK)
    if (ids[at] === ids[at + 1]) return false
  return true
}
