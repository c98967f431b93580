/**
 * A trace: recorded counts and decode choices of many requests. Opening it checks metadata, types and shapes;
 * reading a tensor checks its values, so that callers can use them without further checks. Rows are requests,
 * in file order.
 */
import { EldrError } from '../errors.ts'
import { openSafetensors, type SafetensorsFile } from './safetensors-file.ts'
import type { TensorInfo } from './safetensors-header.ts'
import { checkLayout, type TraceLayout, type TraceTensor } from './trace-layout.ts'
import { checkCounts, checkDomains, checkExpertIds, checkFloats, checkSteps } from './trace-values.ts'

/** The uses of a trace, each with the tensors it needs. */
export type TracePurpose = 'signatures' | 'quality' | 'gate' | 'recent' | 'replay'

/**
 * Readers take rows `from` up to but not including `to` (default: all). [L][E] is layers × experts. Tensors
 * with one value per request are read once: their array is shared and must not be written to.
 */
export interface Trace extends TraceLayout {
  readonly path: string
  /** Every tensor of the file, known or not. */
  readonly tensors: ReadonlyMap<string, TensorInfo>
  has(name: TraceTensor): boolean
  /** What the trace lacks for a purpose; empty if nothing. */
  missingFor(purpose: TracePurpose): string[]
  /** Throws ELDR_TENSOR_MISSING if something is missing for the purpose. */
  need(purpose: TracePurpose): void
  /** [rows][L][E] prompt tokens routed to each expert. */
  prefillCounts(from?: number, to?: number): Promise<Uint16Array>
  /** [rows][L][E] the same, with more weight for tokens near the end of the prompt. */
  prefillRecent(from?: number, to?: number): Promise<Float32Array>
  /** [rows][L][E] summed gate probabilities, of the first `gateRows` requests. */
  gateProb(from?: number, to?: number): Promise<Float32Array>
  /** [rows][L][E] mean raw gate scores, of the first `gateRows` requests. */
  gateLogit(from?: number, to?: number): Promise<Float32Array>
  /**
   * [rows][L][E] decode steps in which each expert fired; counted from the expert ids if the file has no
   * counts.
   */
  decodeCounts(from?: number, to?: number): Promise<Uint16Array>
  /**
   * [N] 0 if the first token, which prefill generates, was the request's last. Such a request has no pattern.
   */
  decodeSteps(): Promise<Uint16Array | Uint32Array>
  /** [N]; undefined if the trace does not record it. */
  promptTokens(): Promise<Uint16Array | Uint32Array | undefined>
  /** [N] indices into `domains`; undefined if the trace does not record it. */
  domain(): Promise<Uint8Array | undefined>
  /** [rows][maxSteps][L][topK]; only the first decodeSteps()[request] steps of a row are valid. */
  decodeExpertIds(from?: number, to?: number): Promise<Uint8Array | Uint16Array>
  /** Hexadecimal hash of the whole file. */
  sha256(): Promise<string>
  close(): Promise<void>
}

const NEEDS: Readonly<Record<TracePurpose, readonly TraceTensor[]>> = {
  signatures: ['prefill_counts'],
  quality: ['decode_counts', 'decode_steps'],
  gate: ['gate_prob_sum', 'gate_logit_mean'],
  recent: ['prefill_recent'],
  replay: ['decode_expert_ids', 'decode_steps'],
}

/** Bytes of expert ids that are read at once for counting. */
const COUNTING_CHUNK = 16 << 20

export async function openTrace(path: string): Promise<Trace> {
  const file = await openSafetensors(path)
  try {
    return traceOf(file, checkLayout(file))
  } catch (error) {
    await file.close()
    throw error
  }
}

/** Opens the trace, runs `use`, and always closes it. */
export async function withTrace<T>(path: string, use: (trace: Trace) => Promise<T>): Promise<T> {
  const trace = await openTrace(path)
  try {
    return await use(trace)
  } finally {
    await trace.close()
  }
}

function traceOf(file: SafetensorsFile, layout: TraceLayout): Trace {
  const { path, tensors } = file
  const { layers, experts, topK, requests, gateRows, maxSteps } = layout
  const has = (name: TraceTensor) => tensors.has(name)
  // One value per request, needed by the checks of every chunk of rows: read once.
  let steps: Promise<Uint16Array | Uint32Array> | undefined
  let tokens: Promise<Uint16Array | Uint32Array> | undefined

  function missingFor(purpose: TracePurpose): string[] {
    const missing: string[] = NEEDS[purpose].filter(name => !has(name))
    if (purpose === 'quality' && has('decode_expert_ids'))
      return missing.filter(name => name !== 'decode_counts')
    if (purpose === 'gate' && missing.length === 0 && gateRows === 0) return [...NEEDS.gate]
    if (purpose === 'recent' && layout.recentHalfLife === undefined)
      missing.push('recent_half_life in the metadata')
    return missing
  }

  function need(purpose: TracePurpose): void {
    const missing = missingFor(purpose)
    if (missing.length === 0) return
    const expected =
      purpose === 'quality'
        ? 'decode_steps and either decode_counts or decode_expert_ids'
        : NEEDS[purpose].join(' and ')
    throw new EldrError('ELDR_TENSOR_MISSING', {
      file: path,
      found: `no ${missing.join(', no ')}`,
      expected: `${expected} for ${purpose}`,
    })
  }

  const checked = (tensor: TraceTensor, first: number) => ({ file: path, tensor, first, shape: layout })

  async function prefillCounts(from = 0, to = requests): Promise<Uint16Array> {
    const counts = asUint16(await file.readRows('prefill_counts', from, to))
    const lengths = await promptTokens()
    if (lengths !== undefined) checkCounts(counts, checked('prefill_counts', from), lengths, 'prompt tokens')
    return counts
  }

  async function floats(name: TraceTensor, from: number, to: number): Promise<Float32Array> {
    const values = await file.readFloat32(name, from, to)
    checkFloats(values, checked(name, from), name === 'gate_logit_mean')
    return values
  }

  async function decodeCounts(from = 0, to = requests): Promise<Uint16Array> {
    need('quality')
    if (!has('decode_counts')) return countExpertIds(from, to)
    const counts = asUint16(await file.readRows('decode_counts', from, to))
    checkCounts(counts, checked('decode_counts', from), await decodeSteps(), 'decode steps')
    return counts
  }

  async function countExpertIds(from: number, to: number): Promise<Uint16Array> {
    const lengths = await decodeSteps()
    const counts = new Uint16Array((to - from) * layers * experts)
    const rowLength = maxSteps * layers * topK
    const rowsAtOnce = Math.max(1, Math.floor(COUNTING_CHUNK / Math.max(1, rowLength)))
    for (let begin = from; begin < to; begin += rowsAtOnce) {
      const end = Math.min(to, begin + rowsAtOnce)
      const ids = await decodeExpertIds(begin, end)
      for (let request = begin; request < end; request++) {
        const row = (request - begin) * rowLength
        const out = (request - from) * layers * experts
        for (let i = 0; i < lengths[request]! * layers * topK; i++)
          counts[out + (Math.floor(i / topK) % layers) * experts + ids[row + i]!]!++
      }
    }
    return counts
  }

  async function decodeExpertIds(from = 0, to = requests): Promise<Uint8Array | Uint16Array> {
    const ids = (await file.readRows('decode_expert_ids', from, to)) as Uint8Array | Uint16Array
    checkExpertIds(ids, checked('decode_expert_ids', from), await decodeSteps(), maxSteps)
    return ids
  }

  function decodeSteps(): Promise<Uint16Array | Uint32Array> {
    steps ??= file.read('decode_steps').then(data => {
      const lengths = asLengths(data)
      if (has('decode_expert_ids')) checkSteps(path, lengths, maxSteps)
      return lengths
    })
    return steps
  }

  async function promptTokens(): Promise<Uint16Array | Uint32Array | undefined> {
    if (!has('prompt_tokens')) return undefined
    tokens ??= file.read('prompt_tokens').then(asLengths)
    return tokens
  }

  async function domain(): Promise<Uint8Array | undefined> {
    if (!has('domain')) return undefined
    const indices = await file.readAs('domain', 'U8')
    checkDomains(path, indices, layout.domains)
    return indices
  }

  return {
    ...layout,
    path,
    tensors,
    has,
    missingFor,
    need,
    prefillCounts,
    prefillRecent: (from = 0, to = requests) => floats('prefill_recent', from, to),
    gateProb: (from = 0, to = gateRows) => floats('gate_prob_sum', from, to),
    gateLogit: (from = 0, to = gateRows) => floats('gate_logit_mean', from, to),
    decodeCounts,
    decodeSteps,
    promptTokens,
    domain,
    decodeExpertIds,
    sha256: () => file.sha256(),
    close: () => file.close(),
  }
}

function asUint16(data: ArrayLike<number | bigint>): Uint16Array {
  return data instanceof Uint16Array ? data : Uint16Array.from(data as ArrayLike<number>)
}

function asLengths(data: ArrayLike<number | bigint>): Uint16Array | Uint32Array {
  return data instanceof Uint32Array ? data : asUint16(data)
}
