/** Requests of a trace as a gateway would see them live, for studies of this folder and its tests. */
import { type Artifact, packPatterns } from '../fit/artifact.ts'
import { rowMatrixOf } from '../math/row-matrix.ts'
import type { RoutableRequest } from '../policy/decode-policy.ts'
import { createSigner } from '../signature/signer.ts'
import { withTrace } from '../trace/trace.ts'
import { rankOf } from './drift-detector.ts'

export interface LiveRow {
  readonly counts: Uint16Array
  /** Decode pattern in 255ths, as a worker would report it. */
  readonly pattern: Uint8Array
  readonly domain: string
}

export function liveRows(file: string): Promise<LiveRow[]> {
  return withTrace(file, async trace => {
    const cells = trace.layers * trace.experts
    const [counts, decoded, steps] = [
      await trace.prefillCounts(),
      await trace.decodeCounts(),
      await trace.decodeSteps(),
    ]
    const domain = await trace.domain()
    return Array.from({ length: trace.requests }, (_, row) => ({
      counts: counts.slice(row * cells, (row + 1) * cells),
      pattern: packPatterns(decoded, steps, [row], cells),
      domain: trace.domains[domain?.[row] ?? -1] ?? '',
    }))
  })
}

/** The request that a gateway would make of a row. */
export function asRequest(id: string, { counts }: LiveRow, artifact: Artifact): RoutableRequest {
  return { id, counts, signature: createSigner(artifact.primary.model).sign(counts) }
}

/** Rank of each row among the calibration requests of an artifact. */
export function ranksOf(rows: readonly LiveRow[], { primary, about }: Artifact): Float64Array {
  const signer = createSigner(primary.model)
  const matrix = rowMatrixOf(primary.centroids, signer.dimensions)
  const cosines = new Float32Array(matrix.rows)
  return Float64Array.from(rows, ({ counts }) => {
    matrix.similarities(signer.sign(counts)!, cosines)
    return rankOf(Math.max(...cosines), about.bestSimilarity)
  })
}
