/**
 * The required layout of a trace file, checked before any tensor is read: its metadata, and the type and
 * shape of every known tensor. `docs/reference/files.md` has the same as a table for users.
 */
import { EldrError } from '../errors.ts'
import type { Dtype } from './dtype.ts'
import {
  type Axis,
  badMetadata,
  checkFormat,
  checkTensor,
  namesOf,
  optionalNumber,
  textOf,
  wholeNumber,
} from './file-checks.ts'
import type { SafetensorsFile } from './safetensors-file.ts'

export const TRACE_FORMAT = 'eldr.trace.v1'

const COUNTS = ['U8', 'U16'] as const
const LENGTHS = ['U8', 'U16', 'U32'] as const
const FLOATS = ['F16', 'F32'] as const

/**
 * N requests, L layers, E experts, k = top_k, S = the longest decode; `rows` ≤ N is a prefix of the trace's
 * rows.
 */
const TENSORS = {
  prefill_counts: { dtypes: COUNTS, shape: ['N', 'L', 'E'] },
  prefill_recent: { dtypes: FLOATS, shape: ['N', 'L', 'E'] },
  gate_prob_sum: { dtypes: FLOATS, shape: ['rows', 'L', 'E'] },
  gate_logit_mean: { dtypes: FLOATS, shape: ['rows', 'L', 'E'] },
  decode_counts: { dtypes: COUNTS, shape: ['N', 'L', 'E'] },
  decode_expert_ids: { dtypes: COUNTS, shape: ['N', 'S', 'L', 'k'] },
  decode_steps: { dtypes: LENGTHS, shape: ['N'] },
  prompt_tokens: { dtypes: LENGTHS, shape: ['N'] },
  domain: { dtypes: ['U8'], shape: ['N'] },
} as const satisfies Record<
  string,
  { dtypes: readonly Dtype[]; shape: readonly ('N' | 'rows' | 'L' | 'E' | 'S' | 'k')[] }
>

export type TraceTensor = keyof typeof TENSORS

export interface TraceLayout {
  readonly model: string
  readonly layers: number
  readonly experts: number
  readonly topK: number
  readonly requests: number
  /** Empty if the trace has none. */
  readonly domains: readonly string[]
  readonly workload?: string
  readonly split?: string
  /** Tokens. */
  readonly recentHalfLife?: number
  /** Number of requests with gate scores, from the start of the trace; 0 if there are none. */
  readonly gateRows: number
  /** S: the number of decode steps that decode_expert_ids has room for; 0 without it. */
  readonly maxSteps: number
  /** Unknown tensors, which are not read. */
  readonly ignored: readonly string[]
}

/** Limits beyond any model; they keep sums and ids within their types. */
const MAX_LAYERS = 4_096
const MAX_EXPERTS = 65_536
/** Steps are counted in u16. */
const MAX_STEPS = 65_535

export function checkLayout({
  path,
  metadata,
  tensors,
}: Pick<SafetensorsFile, 'path' | 'metadata' | 'tensors'>): TraceLayout {
  checkFormat(path, metadata['format'], TRACE_FORMAT)
  const model = textOf(path, metadata, 'model')
  const layers = wholeNumber(path, metadata, 'layers', MAX_LAYERS)
  const experts = wholeNumber(path, metadata, 'experts', MAX_EXPERTS)
  const topK = wholeNumber(path, metadata, 'top_k', experts)
  const domains = namesOf(path, metadata, 'domains', 256)

  const counts = tensors.get('prefill_counts')
  if (counts === undefined)
    throw new EldrError('ELDR_TENSOR_MISSING', {
      file: path,
      expected: 'prefill_counts, which every trace has',
    })
  const sizes = { N: counts.shape[0] ?? 0, L: layers, E: experts, k: topK }
  for (const name of Object.keys(TENSORS) as TraceTensor[]) {
    const tensor = tensors.get(name)
    if (tensor !== undefined) checkTensor(path, tensor, TENSORS[name].dtypes, axesOf(name, sizes))
  }
  if (sizes.N === 0) {
    throw new EldrError('ELDR_TRACE_TOO_SMALL', {
      file: path,
      found: 'no request',
      expected: 'one at least',
      todo: 'Capture some requests.',
    })
  }
  if (tensors.has('domain') && domains.length === 0)
    throw badMetadata(path, 'a tensor domain without domains', 'the names of the domains')

  const gates = [tensors.get('gate_prob_sum'), tensors.get('gate_logit_mean')].filter(
    tensor => tensor !== undefined,
  )
  return {
    model,
    layers,
    experts,
    topK,
    requests: sizes.N,
    domains,
    ...optional('workload', metadata['workload']),
    ...optional('split', metadata['split']),
    ...optional('recentHalfLife', optionalNumber(path, metadata, 'recent_half_life', Number.MIN_VALUE, 1e9)),
    gateRows: gates.length === 0 ? 0 : Math.min(...gates.map(({ shape }) => shape[0] ?? 0)),
    maxSteps: tensors.get('decode_expert_ids')?.shape[1] ?? 0,
    ignored: [...tensors.keys()].filter(name => !Object.hasOwn(TENSORS, name)),
  }
}

function axesOf(name: TraceTensor, sizes: Readonly<Record<'N' | 'L' | 'E' | 'k', number>>): Axis[] {
  return TENSORS[name].shape.map((axis): Axis => {
    if (axis === 'rows') return { fits: size => size <= sizes.N, name: `at most ${sizes.N}` }
    if (axis === 'S') return { fits: size => size <= MAX_STEPS, name: `at most ${MAX_STEPS} steps` }
    return axis === 'N' ? { fits: size => size === sizes.N, name: `${sizes.N} (requests)` } : sizes[axis]
  })
}

function optional<K extends string, V>(key: K, value: V | undefined): Partial<Record<K, V>> {
  return value === undefined ? {} : ({ [key]: value } as Partial<Record<K, V>>)
}
