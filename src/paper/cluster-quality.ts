/**
 * How much a transform's clusters share at decode, on the requests that were clustered. This is the only ground on which gate scores and
 * counts can meet: evaluation requests carry no gate scores, and cosines of different transforms say nothing of each other.
 */
import { packPatterns, unpackSignatures } from '../fit/artifact.ts'
import type { Calibration } from '../fit/calibration.ts'
import { clusterSignatures } from '../fit/cluster.ts'
import type { FitOptions } from '../fit/fit.ts'
import { placeExperts } from '../fit/placement.ts'
import { measureTransforms, selectSignature } from '../fit/select-signature.ts'
import { signaturesOf } from '../fit/signatures.ts'
import { createRandom } from '../math/random.ts'
import type { TransformName } from '../signature/transform.ts'
import { average } from './words.ts'

export interface ClusterQuality {
  readonly transform: TransformName
  /** On the layers kept. */
  readonly rho: number
  /** Experts that a step of `batch` requests of one cluster is expected to activate in a layer, mean over clusters. */
  readonly active: number
  /** The same of requests drawn from all clusters. */
  readonly activeMixed: number
  readonly requests: number
}

/** Empty without decode data. All transforms are judged on the same requests: the first ones, where only those carry gate scores. */
export function clusterQualities(data: Calibration, options: FitOptions, file: string): ClusterQuality[] {
  if (data.decodeCounts === undefined || data.decodeSteps === undefined) return []
  const judged = firstRequests(data, data.gateRows > 0 ? data.gateRows : data.requests)
  if (judged.requests < options.workers) return []
  const selection = { ...options, random: createRandom(options.seed) }
  const meter = measureTransforms(judged, selection, file)
  const { layers, experts } = data
  return meter.qualities.map(({ name }) => {
    const chosen = selectSignature(judged, { ...selection, transform: name }, meter)[0]!
    const { rows, ...signatures } = signaturesOf(judged, chosen, undefined)
    const { clusterOf } = clusterSignatures(unpackSignatures(signatures), options)
    const patterns = packPatterns(judged.decodeCounts!, judged.decodeSteps!, rows, layers * experts)
    const expected = (clusters: number, of: ArrayLike<number>) =>
      placeExperts({
        patterns,
        clusterOf: of,
        clusters,
        layers,
        experts,
        ranks: 1,
        batch: options.batch,
      }).fullest.map(({ ideal }) => ideal)
    return {
      transform: name,
      rho: chosen.rho!,
      active: average(expected(options.workers, clusterOf)),
      activeMixed: average(expected(1, new Uint8Array(rows.length))),
      requests: rows.length,
    }
  })
}

function firstRequests(data: Calibration, requests: number): Calibration {
  const cells = requests * data.layers * data.experts
  const { counts, recent, gateProb, gateLogit, decodeCounts, domain } = data
  return {
    ...data,
    requests,
    gateRows: Math.min(data.gateRows, requests),
    counts: counts.subarray(0, cells),
    ...(recent && { recent: recent.subarray(0, cells) }),
    ...(gateProb && { gateProb: gateProb.subarray(0, cells) }),
    ...(gateLogit && { gateLogit: gateLogit.subarray(0, cells) }),
    ...(decodeCounts && { decodeCounts: decodeCounts.subarray(0, cells) }),
    ...(domain && { domain: domain.subarray(0, requests) }),
  }
}
