import { documentFrequency, idfWeights } from '../signature/idf.ts'
import type { Source, TransformName } from '../signature/transform.ts'
import { isServable, TRANSFORM, TRANSFORMS } from '../signature/transform.ts'
import type { Trace } from '../trace/trace.ts'

/**
 * The parts of a trace that a fit reads, in memory. Arrays are [requests × layers × experts] unless noted.
 */
export interface Calibration {
  readonly requests: number
  readonly layers: number
  readonly experts: number
  readonly topK: number
  readonly counts: Uint16Array
  readonly recent?: Float32Array
  /** Of the first `gateRows` requests. */
  readonly gateProb?: Float32Array
  readonly gateLogit?: Float32Array
  readonly gateRows: number
  readonly decodeCounts?: Uint16Array
  /** [requests] */
  readonly decodeSteps?: Uint16Array | Uint32Array
  /** [requests] */
  readonly domain?: Uint8Array
  /** [layers × experts] */
  readonly idf: Float32Array
}

/** Gate scores are read only if quality can be measured: no artifact can use them. */
export async function readCalibration(trace: Trace): Promise<Calibration> {
  const { requests, layers, experts, topK, gateRows } = trace
  const counts = await trace.prefillCounts()
  const quality = trace.missingFor('quality').length === 0
  const domain = await trace.domain()
  return {
    requests,
    layers,
    experts,
    topK,
    counts,
    gateRows,
    idf: idfWeights(documentFrequency(counts, layers * experts), requests),
    recent: trace.missingFor('recent').length === 0 ? await trace.prefillRecent() : undefined,
    gateProb: quality && trace.has('gate_prob_sum') ? await trace.gateProb() : undefined,
    gateLogit: quality && trace.has('gate_logit_mean') ? await trace.gateLogit() : undefined,
    decodeCounts: quality ? await trace.decodeCounts() : undefined,
    decodeSteps: quality ? await trace.decodeSteps() : undefined,
    domain,
  }
}

export function valuesOf(data: Calibration, source: Source): Uint16Array | Float32Array | undefined {
  return {
    counts: data.counts,
    recent: data.recent,
    'gate-prob': data.gateProb,
    'gate-logit': data.gateLogit,
  }[source]
}

/**
 * Transforms that the trace has values for. Values that are all almost zero count as missing: they have no
 * direction.
 */
export function transformsOf(data: Calibration): TransformName[] {
  const sources = new Set(
    TRANSFORMS.map(name => TRANSFORM[name].source).filter(source =>
      valuesOf(data, source)?.some(value => Math.abs(value) > LEAST),
    ),
  )
  return TRANSFORMS.filter(name => sources.has(TRANSFORM[name].source))
}

/** Below this, squares of float32 values underflow. */
const LEAST = 1e-12

/**
 * Requests whose quality can be measured: some expert fired at prefill and at least one step was decoded.
 * Gate transforms cover the first rows only.
 */
export function judgedRows(data: Calibration, name: TransformName): Uint32Array {
  const limit = isServable(name) ? data.requests : data.gateRows
  const rows: number[] = []
  for (let r = 0; r < limit; r++) if (data.decodeSteps![r]! > 0 && hasCounts(data, r)) rows.push(r)
  return Uint32Array.from(rows)
}

function hasCounts({ counts, layers, experts }: Calibration, request: number): boolean {
  const cells = layers * experts
  for (let at = request * cells; at < (request + 1) * cells; at++) if (counts[at]! > 0) return true
  return false
}
