/**
 * Checks the values of a trace as they are read; the error names the position of the first invalid one.
 * Without these checks a capture bug would show much later as a bad signature, or not at all.
 *
 * `first` is the index in the trace of the first row, so that positions count from the start of the trace.
 */
import { EldrError } from '../errors.ts'

/** Layout of the values: [rows × layers × experts]. */
export interface Shape {
  readonly layers: number
  readonly experts: number
  readonly topK: number
}

/** The values to check: their file, tensor, first row and layout. */
export interface Checked {
  readonly file: string
  readonly tensor: string
  readonly first: number
  readonly shape: Shape
}

type Lengths = Uint16Array | Uint32Array

/** Far above any sum over a prompt, far below the point where squares overflow float32. */
const LARGEST = 1e9

/** Finite, and not negative unless they are raw gate scores. */
export function checkFloats(
  values: Float32Array,
  { file, tensor, first, shape: { layers, experts } }: Checked,
  signed: boolean,
): void {
  for (let i = 0; i < values.length; i++) {
    const value = values[i]!
    if (Math.abs(value) <= LARGEST && (signed || value >= 0)) continue
    const place = at(
      first + Math.floor(i / (layers * experts)),
      Math.floor(i / experts) % layers,
      i % experts,
    )
    throw badValue(
      file,
      `${value} in ${tensor}${place}`,
      signed ? `a number from -${LARGEST} to ${LARGEST}` : `a number from 0 to ${LARGEST}`,
    )
  }
}

/**
 * Each token or decode step selects top_k different experts per layer. So no count exceeds the request's
 * tokens or steps (`lengths`, one per request of the whole trace), and the sum of a layer is at most top_k
 * times that. It may be lower: a capture may not see every token.
 */
export function checkCounts(
  counts: Uint16Array,
  { file, tensor, first, shape: { layers, experts, topK } }: Checked,
  lengths: Lengths,
  unit: 'prompt tokens' | 'decode steps',
): void {
  for (let i = 0, cell = 0; i < counts.length; cell++) {
    const request = first + Math.floor(cell / layers)
    const length = lengths[request]!
    let sum = 0
    for (const end = i + experts; i < end; i++) {
      const count = counts[i]!
      if (count > length)
        throw badValue(
          file,
          `${count} in ${tensor}${at(request, cell % layers, i % experts)}`,
          `at most its ${length} ${unit}`,
        )
      sum += count
    }
    if (sum > topK * length) {
      const expected = `at most ${topK * length}, top_k × ${length} ${unit}`
      throw badValue(
        file,
        `a sum of ${sum} over the experts in ${tensor}${at(request, cell % layers)}`,
        expected,
      )
    }
  }
}

/** decode_expert_ids has room for `maxSteps` steps per request, so no request can have more. */
export function checkSteps(file: string, steps: Lengths, maxSteps: number): void {
  const request = steps.findIndex(step => step > maxSteps)
  if (request < 0) return
  throw badValue(
    file,
    `${steps[request]} in decode_steps${at(request)}`,
    `at most the ${maxSteps} steps of decode_expert_ids`,
  )
}

export function checkDomains(file: string, domain: Uint8Array, domains: readonly string[]): void {
  const request = domain.findIndex(index => index >= domains.length)
  if (request < 0) return
  throw badValue(
    file,
    `${domain[request]} in domain${at(request)}`,
    `an index into the ${domains.length} domains of the metadata`,
  )
}

/**
 * ids: [rows × maxSteps × layers × top_k]. Only the first steps of a row, as many as the request has, are
 * read; the rest is padding.
 */
export function checkExpertIds(
  ids: Uint8Array | Uint16Array,
  { file, tensor, first, shape: { layers, experts, topK } }: Checked,
  steps: Lengths,
  maxSteps: number,
): void {
  // the step and layer, counted from 1, in which an expert was last seen
  const lastSeen = new Uint32Array(experts)
  const rowLength = maxSteps * layers * topK
  const rows = rowLength === 0 ? 0 : ids.length / rowLength
  let now = 0
  for (let row = 0; row < rows; row++) {
    const begin = row * rowLength
    const end = begin + steps[first + row]! * layers * topK
    for (let i = begin; i < end; i++) {
      if ((i - begin) % topK === 0) now++
      const id = ids[i]!
      if (id < experts && lastSeen[id] !== now) {
        lastSeen[id] = now
        continue
      }
      const cell = Math.floor((i - begin) / topK)
      const place = `${tensor}${at(first + row, cell % layers)}, step ${Math.floor(cell / layers)}`
      if (id >= experts) throw badValue(file, `expert ${id} in ${place}`, `an expert below ${experts}`)
      throw badValue(file, `expert ${id} twice in ${place}`, `${topK} different experts`)
    }
  }
}

function at(request: number, layer?: number, expert?: number): string {
  return ` of request ${request}${layer === undefined ? '' : `, layer ${layer}`}${expert === undefined ? '' : `, expert ${expert}`}`
}

function badValue(file: string, found: string, expected: string): EldrError {
  return new EldrError('ELDR_TENSOR_BAD_VALUE', { file, found, expected })
}
