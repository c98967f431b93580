/** What an answer to a calibration request says: experts of the prompt and of each generated token but the last. Any value may come. */
import { readDecodeExperts } from '../wire/decode-experts.ts'
import { MAX_HALF_LIFE, readHandoffCounts } from '../wire/counts.ts'
import { EldrError } from '../errors.ts'
import { quoted } from '../trace/quoted.ts'
import type { Captured } from './captured.ts'

const MOST_LAYERS = 4_096
const MOST_EXPERTS = 65_536
const UNITS = 256

/** `where`: for the message, such as `line 7`. */
export function readAnswer(body: unknown, steps: number, where: string): Captured {
  const params = member(body, 'kv_transfer_params')
  const eldr = member(params, 'eldr')
  if (eldr === undefined || eldr === null || typeof eldr !== 'object')
    throw missing(`an answer to ${where} without kv_transfer_params.eldr`)
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
      'Change what the reason names, and restart the server; docs/guides/vllm.md lists what cannot be captured.',
    )
  if (Object.keys(eldr).length === 0)
    throw missing(
      `an empty eldr object for ${where}`,
      'The server could not follow the request; look into its log.',
    )
  if (!isWhole(layers, MOST_LAYERS) || !isWhole(experts, MOST_EXPERTS) || !isWhole(topK, experts))
    throw wrong(where, 'no shape of a model')
  const hasRecent = recent !== undefined && recent !== null
  if (hasRecent && !(typeof halfLife === 'number' && halfLife >= 1 && halfLife <= MAX_HALF_LIFE))
    throw wrong(where, 'recent counts without a half-life')
  const shape = { layers, experts, topK }
  const counted = readHandoffCounts(eldr, {
    ...shape,
    minCovered: 0,
    ...(hasRecent && { recentHalfLife: halfLife as number }),
  })
  if ('reject' in counted) throw wrong(where, `counts that cannot be (${counted.reject})`)
  if (decodeOff !== undefined) throw missing(`no decode ids (${quoted(decodeOff)})`)
  if (decode === undefined) throw missing(`counts for ${where} but no decode ids`)
  const generated = readDecodeExperts(decode, shape)
  if (generated === undefined || generated.steps > steps || !areDifferent(generated.ids, shape))
    throw wrong(where, 'decode ids that cannot be')
  return {
    ...shape,
    halfLife: hasRecent ? (halfLife as number) : 0,
    tokens: counted.tokens,
    covered: counted.covered,
    counts: counted.counts,
    ...(counted.recent && { recent: Uint16Array.from(counted.recent, value => value * UNITS) }),
    steps: generated.steps,
    ids: generated.ids,
  }
}

/** A token takes each expert of a layer once. */
function areDifferent(
  ids: Uint16Array,
  { experts, topK }: { readonly experts: number; readonly topK: number },
): boolean {
  const seen = new Uint32Array(experts) // in which row each was last, from 1
  for (let from = 0, row = 1; from < ids.length; from += topK, row++)
    for (let i = from; i < from + topK; i++) {
      if (seen[ids[i]!] === row) return false
      seen[ids[i]!] = row
    }
  return true
}

const member = (value: unknown, name: string): unknown =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined

const isWhole = (value: unknown, most: number): value is number =>
  Number.isInteger(value) && (value as number) >= 1 && (value as number) <= most

const missing = (found: string, todo?: string): EldrError =>
  new EldrError('ELDR_CAPTURE_MISSING', { found, ...(todo !== undefined && { todo }) })

const wrong = (where: string, found: string): EldrError =>
  new EldrError('ELDR_ENDPOINT_FAILED', {
    found: `${found} in the answer to ${where}`,
    expected: 'what docs/guides/worker.md says of a calibration request',
  })
