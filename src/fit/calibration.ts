import { documentFrequency, idfWeights } from '../signature/idf.ts'
import type { Source, TransformName } from '../signature/transform.ts'
import { isServable, TRANSFORM, TRANSFORMS } from '../signature/transform.ts'
import type { Trace } from '../trace/trace.ts'

/** What a fit reads of a trace, in memory. Arrays are [requests × layers × experts] unless a line says otherwise. */
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

/** Gate scores are read only where quality can be measured: no artifact can use them. */
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
    ...(trace.missingFor('recent').length === 0 && { recent: await trace.prefillRecent() }),
    ...(quality && trace.has('gate_prob_sum') && { gateProb: await trace.gateProb() }),
    ...(quality && trace.has('gate_logit_mean') && { gateLogit: await trace.gateLogit() }),
    ...(quality && { decodeCounts: await trace.decodeCounts(), decodeSteps: await trace.decodeSteps() }),
    ...(domain !== undefined && { domain }),
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

/** Transforms that the trace has the values for. Values that are all next to nothing count as none: no direction can be made of them. */
export function transformsOf(data: Calibration): TransformName[] {
  const sources = new Set(
    TRANSFORMS.map(name => TRANSFORM[name].source).filter(source =>
      valuesOf(data, source)?.some(value => Math.abs(value) > LEAST),
    ),
  )
  return TRANSFORMS.filter(name => sources.has(TRANSFORM[name].source))
}

/** Below this, squares of float32 values vanish. */
const LEAST = 1e-12

/** Requests whose quality can be judged: some expert fired at prefill and some step was decoded. Gate transforms see the first rows only. */
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
