/**
 * Writes traces from a journal, with one pass over its records per tensor, so that only one request is in
 * memory at a time.
 */
import { EldrError } from '../errors.ts'
import { type TensorToWrite, writeSafetensors } from '../trace/safetensors-write.ts'
import { TRACE_FORMAT } from '../trace/trace-layout.ts'
import { idBytes, type ModelShape } from './captured.ts'
import type { Journal } from './journal.ts'
import type { CapturedHead } from './journal-record.ts'

export interface TraceAbout {
  readonly model: string
  /** Names of all domains; empty for none. */
  readonly domains: readonly string[]
  /** A request's index into `domains`. */
  readonly domainOf: (request: number) => number
  readonly workload?: string
  /** Origin of the trace, copied to its metadata. */
  readonly provenance: Readonly<Record<string, string>>
}

export type Split = 'calibration' | 'evaluation'

/** Decode steps are stored as u16. */
export const MAX_STEPS = 65_535

/**
 * Writes requests in the given order. A calibration has decode counts; an evaluation also has the experts of
 * each step.
 */
export async function writeTrace(
  path: string,
  split: Split,
  requests: readonly number[],
  journal: Journal,
  about: TraceAbout,
): Promise<void> {
  const { shape } = journal
  if (shape === undefined || requests.length === 0) {
    const found = `no request for the ${split} trace`
    throw new EldrError('ELDR_TRACE_TOO_SMALL', { file: path, found, expected: 'at least one' })
  }
  const { layers, experts, topK, halfLife } = shape
  const metadata = {
    format: TRACE_FORMAT,
    model: about.model,
    layers: String(layers),
    experts: String(experts),
    top_k: String(topK),
    ...(about.domains.length > 0 && { domains: about.domains.join(',') }),
    ...(about.workload !== undefined && { workload: about.workload }),
    split,
    ...(halfLife > 0 && { recent_half_life: String(halfLife) }),
    ...about.provenance,
  }
  await writeSafetensors(path, { metadata, tensors: tensorsOf(split, requests, journal, shape, about) })
}

function tensorsOf(
  split: Split,
  requests: readonly number[],
  journal: Journal,
  shape: ModelShape,
  about: TraceAbout,
): Record<string, TensorToWrite> {
  const { layers, experts, topK, halfLife } = shape
  const rows = requests.length
  const heads = requests.map(request => journal.head(request) as CapturedHead)
  const tokens = heads.map(head => head.tokens)
  const steps = heads.map(head => head.steps)
  const stepRows = steps.reduce((max, count) => Math.max(max, count), 0)
  const cells = [rows, layers, experts]
  const each = async function* <T>(make: (request: number, row: number) => Promise<T>) {
    for (let row = 0; row < rows; row++) yield await make(requests[row]!, row)
  }
  return {
    prefill_counts: { dtype: 'U16', shape: cells, data: each(request => journal.counts(request)) },
    ...(halfLife > 0 && {
      prefill_recent: {
        dtype: 'F32' as const,
        shape: cells,
        data: each(async request => Float32Array.from(await journal.recent(request), units => units / 256)),
      },
    }),
    prompt_tokens: lengths(tokens),
    decode_steps: { dtype: 'U16', shape: [rows], data: Uint16Array.from(steps) },
    decode_counts: {
      dtype: 'U16',
      shape: cells,
      data: each(async request => countSteps(idsOf(await journal.ids(request), experts), shape)),
    },
    ...(split === 'evaluation' && {
      decode_expert_ids: {
        dtype: idBytes(experts) === 1 ? ('U8' as const) : ('U16' as const),
        shape: [rows, stepRows, layers, topK],
        data: each(async request =>
          padded(await journal.ids(request), stepRows * layers * topK * idBytes(experts)),
        ),
      },
    }),
    ...(about.domains.length > 0 && {
      domain: { dtype: 'U8' as const, shape: [rows], data: Uint8Array.from(requests, about.domainOf) },
    }),
  }
}

function lengths(values: readonly number[]): TensorToWrite {
  const isShort = values.every(value => value <= 0xffff)
  return {
    dtype: isShort ? 'U16' : 'U32',
    shape: [values.length],
    data: isShort ? Uint16Array.from(values) : Uint32Array.from(values),
  }
}

const idsOf = (bytes: ArrayBuffer, experts: number): Uint8Array | Uint16Array =>
  idBytes(experts) === 1 ? new Uint8Array(bytes) : new Uint16Array(bytes)

/** Number of steps in which each expert was used. */
function countSteps(ids: Uint8Array | Uint16Array, { layers, experts, topK }: ModelShape): Uint16Array {
  const counts = new Uint16Array(layers * experts)
  for (let i = 0; i < ids.length; i++) counts[(Math.floor(i / topK) % layers) * experts + ids[i]!]!++
  return counts
}

function padded(bytes: ArrayBuffer, length: number): Uint8Array {
  const out = new Uint8Array(length)
  out.set(new Uint8Array(bytes))
  return out
}
