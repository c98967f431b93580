/**
 * Reads the experts from the response to a calibration request: those of the prompt and of each generated
 * token but the last. Validates everything.
 */
import { readDecodeExperts } from '../wire/decode-experts.ts'
import { MAX_HALF_LIFE, readHandoffCounts } from '../wire/counts.ts'
import { EldrError } from '../errors.ts'
import { quoted } from '../trace/quoted.ts'
import type { Captured } from './captured.ts'

const MAX_LAYERS = 4_096
const MAX_EXPERTS = 65_536
const UNITS = 256

/** `where`: for error messages, such as `line 7`. */
export function readResponse(body: unknown, steps: number, where: string): Captured {
  const params = member(body, 'kv_transfer_params')
  const eldr = member(params, 'eldr')
  if (eldr === undefined || eldr === null || typeof eldr !== 'object')
    throw missing(`a response to ${where} without kv_transfer_params.eldr`)
  const {
    off,
    decode_off: decodeOff,
    layers,
    experts,
    top_k: topK,
    half_life: halfLife,
    recent,
    decode,
  } = eldr as Record<string, unknown>
  if (off !== undefined)
    throw missing(
      `capture switched off (${quoted(off)})`,
      'Fix the given reason and restart the server; docs/guides/vllm.md lists what cannot be captured.',
    )
  if (Object.keys(eldr).length === 0)
    throw missing(
      `an empty eldr object for ${where}`,
      'The server could not capture this request; see its log.',
    )
  if (!isWhole(layers, MAX_LAYERS) || !isWhole(experts, MAX_EXPERTS) || !isWhole(topK, experts))
    throw wrong(where, 'an invalid model shape')
  const hasRecent = recent !== undefined && recent !== null
  if (hasRecent && !(typeof halfLife === 'number' && halfLife >= 1 && halfLife <= MAX_HALF_LIFE))
    throw wrong(where, 'recent counts without a half-life')
  const shape = { layers, experts, topK }
  const counted = readHandoffCounts(eldr, {
    ...shape,
    minCovered: 0,
    recentHalfLife: hasRecent ? (halfLife as number) : undefined,
  })
  if ('reject' in counted) throw wrong(where, `invalid counts (${counted.reject})`)
  if (decodeOff !== undefined) throw missing(`no decode ids (${quoted(decodeOff)})`)
  if (decode === undefined) throw missing(`counts for ${where} but no decode ids`)
  const generated = readDecodeExperts(decode, shape)
  if (generated === undefined || generated.steps > steps || !areDifferent(generated.ids, shape))
    throw wrong(where, 'invalid decode ids')
  return {
    ...shape,
    halfLife: hasRecent ? (halfLife as number) : 0,
    tokens: counted.tokens,
    covered: counted.covered,
    counts: counted.counts,
    recent: counted.recent && Uint16Array.from(counted.recent, value => value * UNITS),
    steps: generated.steps,
    ids: generated.ids,
  }
}

/** True if no token has an expert twice in a layer. */
function areDifferent(
  ids: Uint16Array,
  { experts, topK }: { readonly experts: number; readonly topK: number },
): boolean {
  const seen = new Uint32Array(experts) // last row of each expert, from 1
  for (let from = 0, row = 1; from < ids.length; from += topK, row++)
    for (let i = from; i < from + topK; i++) {
      if (seen[ids[i]!] === row) return false
      seen[ids[i]!] = row
    }
  return true
}

const member = (value: unknown, name: string): unknown =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined

const isWhole = (value: unknown, max: number): value is number =>
  Number.isInteger(value) && (value as number) >= 1 && (value as number) <= max

const missing = (found: string, todo?: string): EldrError =>
  new EldrError('ELDR_CAPTURE_MISSING', { found, todo })

const wrong = (where: string, found: string): EldrError =>
  new EldrError('ELDR_ENDPOINT_FAILED', {
    found: `${found} in the response to ${where}`,
    expected: 'the response that docs/guides/worker.md describes for calibration requests',
  })
