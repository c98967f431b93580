import { bytesFor, createKernel, layOut } from '../math/kernel.ts'
import { strideOf } from '../math/row-matrix.ts'

/**
 * The union policy's state per worker: S = Σ −log(1 − p) over its requests, for every cell (an expert of a
 * layer), and e^−S, the chance that none of them fires it in a step.
 *
 * Sums are integers, in steps of 1/16,384: adding and subtracting the same request restores them exactly, in
 * any order. e^−S is computed from S alone, so it does not drift either.
 */
export interface UnionState {
  readonly workers: number
  /** Adds a request's logs to a worker, or subtracts them. */
  add(worker: number, logs: Uint16Array, sign: 1 | -1): void
  /** Adds to S directly, for example what other gateways report about their requests. */
  addSums(worker: number, delta: Int32Array): void
  /** Expected distinct experts of a step, summed over layers. */
  unionOf(worker: number): number
  /**
   * growth[w] = Σ p·e^−S: experts that a request with these chances would add to worker w, summed over
   * layers.
   */
  growth(chances: Float32Array, out: Float32Array): void
  /** The same of one worker. */
  growthOn(worker: number, chances: Float32Array): number
  /** 1 − e^−S of one worker: the chance that a step fires each cell. */
  chances(worker: number): Float32Array
  /** S of one worker, for tests and for sharing. */
  sums(worker: number): Int32Array
}

const STEPS = 16_384
/** Chances are quantised to 4,096ths; the highest has a finite log. */
const CHANCE_STEPS = 4_096
/**
 * No prediction is certain: above this, one request would hide a worker's other requests for a cell (design:
 * union).
 */
export const MAX_CHANCE = 0.98
const LOGS = Uint16Array.from({ length: CHANCE_STEPS + 1 }, (_, at) =>
  Math.round(-Math.log(1 - Math.min(MAX_CHANCE, at / CHANCE_STEPS)) * STEPS),
)

/** −log(1 − p) in fixed point. */
export function logsOf(chances: Float32Array, out = new Uint16Array(chances.length)): Uint16Array {
  for (let c = 0; c < chances.length; c++) out[c] = LOGS[(chances[c]! * CHANCE_STEPS + 0.5) | 0]!
  return out
}

export function createUnionState(workers: number, cells: number): UnionState {
  const stride = strideOf(cells)
  const kernel = createKernel(
    bytesFor(4 * workers * stride, 4 * workers * stride, 4 * stride, 2 * stride, 4 * workers),
  )
  const { f32, i32, i16 } = layOut(kernel)
  const [sums, idle, query, added, result] = [
    i32(workers * stride),
    f32(workers * stride),
    f32(stride),
    i16(stride),
    f32(workers),
  ]
  const unions = new Float64Array(workers)
  for (let w = 0; w < workers; w++) idle.view.fill(1, w * stride, w * stride + cells)

  return {
    workers,
    add(worker, logs, sign) {
      added.view.set(logs)
      const at = 4 * stride * worker
      unions[worker] = kernel.addLogs(sums.at + at, added.at, sign, idle.at + at, stride, 1 / STEPS)
    },
    addSums(worker, delta) {
      const at = worker * stride
      for (let c = 0; c < cells; c++) sums.view[at + c]! += delta[c]!
      // Adds zeros, which recomputes e^−S.
      added.view.fill(0)
      unions[worker] = kernel.addLogs(sums.at + 4 * at, added.at, 1, idle.at + 4 * at, stride, 1 / STEPS)
    },
    unionOf: worker => unions[worker]!,
    growth(chances, out) {
      query.view.set(chances)
      kernel.dots(idle.at, workers, 4 * stride, query.at, result.at)
      out.set(result.view)
    },
    growthOn(worker, chances) {
      query.view.set(chances)
      kernel.dots(idle.at + 4 * stride * worker, 1, 4 * stride, query.at, result.at)
      return result.view[0]!
    },
    chances: worker => idle.view.slice(worker * stride, worker * stride + cells).map(none => 1 - none),
    sums: worker => sums.view.slice(worker * stride, worker * stride + cells),
  }
}
