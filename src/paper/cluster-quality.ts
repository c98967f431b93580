/**
 * How many experts the clusters of a transform share at decode, on the requests that were clustered. Only
 * this compares gate scores with counts: evaluation requests carry no gate scores, and cosines of different
 * transforms are not comparable.
 */
import { packPatterns, unpackSignatures } from '../fit/artifact.ts'
import type { Calibration } from '../fit/calibration.ts'
import { clusterSignatures } from '../fit/cluster.ts'
import type { FitOptions } from '../fit/fit.ts'
import { placeExperts } from '../fit/expert-placement.ts'
import { measureTransforms, selectSignature } from '../fit/select-signature.ts'
import { signaturesOf } from '../fit/signatures.ts'
import { createRandom } from '../math/random.ts'
import type { TransformName } from '../signature/transform.ts'
import { average } from './words.ts'

export interface ClusterQuality {
  readonly transform: TransformName
  /** On the layers kept. */
  readonly rho: number
  /** Expected active experts per layer in a step of `batch` requests of one cluster, mean over clusters. */
  readonly active: number
  /** The same for requests drawn from all clusters. */
  readonly activeMixed: number
  readonly requests: number
}

/**
 * Empty without decode data. All transforms use the same requests: the first ones, where only those carry
 * gate scores.
 */
export function clusterQualities(data: Calibration, options: FitOptions, file: string): ClusterQuality[] {
  if (data.decodeCounts === undefined || data.decodeSteps === undefined) return []
  const compared = firstRequests(data, data.gateRows > 0 ? data.gateRows : data.requests)
  if (compared.requests < options.workers) return []
  const selection = { ...options, random: createRandom(options.seed) }
  const meter = measureTransforms(compared, selection, file)
  const { layers, experts } = data
  return meter.qualities.map(({ name }) => {
    const chosen = selectSignature(compared, { ...selection, transform: name }, meter)[0]!
    const { rows, ...signatures } = signaturesOf(compared, chosen, undefined)
    const { clusterOf } = clusterSignatures(unpackSignatures(signatures), options)
    const patterns = packPatterns(compared.decodeCounts!, compared.decodeSteps!, rows, layers * experts)
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
    recent: recent?.subarray(0, cells),
    gateProb: gateProb?.subarray(0, cells),
    gateLogit: gateLogit?.subarray(0, cells),
    decodeCounts: decodeCounts?.subarray(0, cells),
    domain: domain?.subarray(0, requests),
  }
}
