/**
 * One attempt at a better artifact: refit from half of the sample, match the clusters to the workers, judge
 * on the other half. Pure, and made of values that can be sent to a thread.
 */
import { type Artifact, type ArtifactAbout, type FittedSignature, unpackSignatures } from '../fit/artifact.ts'
import { clusterSignatures, costsTo, type FittedClusters, renumber } from '../fit/cluster.ts'
import { similarityStats } from '../fit/similarity-stats.ts'
import { centroidsOf } from '../math/centroids.ts'
import { packedRows, type PackedRows, packUnit } from '../math/packed-rows.ts'
import { predictorOf } from '../policy/create-policy.ts'
import type { PolicyName, RoutableRequest } from '../policy/decode-policy.ts'
import { MAX_CHANCE } from '../policy/union-state.ts'
import type { UnionCost } from '../policy/step-cost.ts'
import { dimensionsOf, type SignatureModel, writeSignature } from '../signature/signature.ts'
import { cachedPredictor } from '../sim/foresight.ts'
import { VERSION } from '../version.ts'
import { type Gain, judge } from './judge.ts'
import type { SampleSnapshot } from './live-sample.ts'
import { type Homes, matchWorkers, movedHomes } from './match-workers.ts'

export interface AttemptInput {
  readonly sample: SampleSnapshot
  readonly artifact: Artifact
  /** Decode workers in the order of the new clusters. */
  readonly workers: readonly AttemptWorker[]
  readonly inflight: readonly InflightRequest[]
  readonly policy: PolicyName
  readonly tau: number
  readonly cost?: UnionCost
  /** Mean number of requests in flight on all workers. */
  readonly meanInflight: number
  readonly seed: number
  readonly parentSha256: string
  readonly atMs: number
}

export interface AttemptWorker {
  /** Its cluster of the old artifact, if it has one. */
  readonly cluster?: number
  /** The operator set its cluster. */
  readonly fixed: boolean
}

export interface InflightRequest {
  /** Position in `workers`. */
  readonly worker: number
  readonly signature: Float32Array
}

export type JudgedBy = 'reported' | 'predicted'

export interface AttemptResult {
  readonly gain: Gain
  readonly judgedBy: JudgedBy
  /** Requests that the new artifact was fitted on, and those that it was judged on. */
  readonly fitted: number
  readonly heldOut: number
  /** Requests in flight whose region is on another worker now, and all of them. */
  readonly moved: number
  readonly inflight: number
  readonly artifact: Artifact
}

/** Fewer reported patterns than this do not judge: then all held-out requests do, by their prompts. */
const MIN_REPORTED = 64
/** One run starts from the centroids in force; the others from rows, in case that is a dead end. */
const RESTARTS = 3

export function attempt(input: AttemptInput): AttemptResult {
  const { sample, artifact: old, workers, policy, tau, cost } = input
  const { layers, experts, topK } = old.about
  const rows = signedRows(sample, old)
  const [fitRows, heldRows] = [0, 1].map(half => rows.filter(({ row }) => sample.heldOut[row] === half)) as [
    SignedRow[],
    SignedRow[],
  ]
  const width = dimensionsOf(old.primary.model)
  const points = packedRows(joined(fitRows, width), width)
  const targets = byWorker(old.primary.centroids, width, workers)
  const isWarm = workers.every(({ cluster }) => cluster !== undefined)
  const fresh = clusterSignatures(points, {
    workers: workers.length,
    balance: old.about.balance,
    restarts: RESTARTS,
    seed: input.seed,
    start: isWarm ? targets : undefined,
  })
  const inflight = homesOf(input.inflight, fresh.centroids, width)
  const clusters = renumber(
    fresh,
    matchWorkers(
      workers.length,
      inflight,
      {
        cluster: fresh.clusterOf,
        worker: nearest(costsTo(points, knownRows(targets), workers.length), workers.length),
      },
      worker => workers[worker]!.fixed,
    ),
    width,
  )
  const judged = judgedRows(sample, heldRows)
  const candidate = artifactFrom(input, fitRows, heldRows, clusters)
  const gain = judge(
    {
      artifact: { ...old, primary: { ...old.primary, centroids: targets } },
      predictor: cachedPredictor(predictorOf({ artifact: old })),
    },
    { artifact: candidate, predictor: cachedPredictor(predictorOf({ artifact: candidate })) },
    {
      requests: judged.rows.map(({ row, signature }): RoutableRequest => ({
        id: '',
        signature,
        counts: sample.counts.subarray(row * sample.cells, (row + 1) * sample.cells),
      })),
      chances: judged.rows.map(({ row }) => patternAt(sample, row, { experts, topK }).map(asChance)),
    },
    {
      policy,
      tau,
      cost,
      workers: workers.length,
      layers,
      inflight: Math.max(workers.length, Math.round(input.meanInflight)),
      seed: input.seed,
    },
  )
  const { judgedBy } = judged
  const lineage = {
    parentSha256: input.parentSha256,
    atMs: input.atMs,
    sampleRequests: fitRows.length,
    heldOutRequests: judged.rows.length,
    gain: gain.mean,
    gainHalf: gain.half,
    judgedBy,
  }
  const numbered = homesOf(input.inflight, clusters.centroids, width)
  return {
    gain,
    judgedBy,
    fitted: fitRows.length,
    heldOut: judged.rows.length,
    moved: movedHomes(
      numbered,
      workers.map((_, worker) => worker),
    ),
    inflight: input.inflight.length,
    artifact: { ...candidate, about: { ...candidate.about, lineage } },
  }
}

interface SignedRow {
  readonly row: number
  readonly signature: Float32Array
}

function signedRows(
  { rows, cells, counts, plain }: SampleSnapshot,
  { primary, fallback }: Artifact,
): SignedRow[] {
  const signed: SignedRow[] = []
  for (let row = 0; row < rows; row++) {
    const at = (values: Uint16Array) => values.subarray(row * cells, (row + 1) * cells)
    const signature = signatureOf(primary.model, at(counts))
    const usable =
      fallback === undefined || (plain !== undefined && signatureOf(fallback.model, at(plain)) !== undefined)
    if (signature !== undefined && usable) signed.push({ row, signature })
  }
  return signed
}

function signatureOf(model: SignatureModel, counts: Uint16Array): Float32Array | undefined {
  const signature = new Float32Array(dimensionsOf(model))
  return writeSignature(model, counts, signature) ? signature : undefined
}

function joined(rows: readonly SignedRow[], width: number): Int16Array {
  const packed = new Int16Array(rows.length * width)
  rows.forEach(({ signature }, at) => packUnit(signature, packed.subarray(at * width, (at + 1) * width)))
  return packed
}

/** Centroids in the order of the workers; a row of NaN for a worker without one. */
function byWorker(centroids: Float32Array, width: number, workers: readonly AttemptWorker[]): Float32Array {
  const rows = new Float32Array(workers.length * width).fill(NaN)
  workers.forEach(({ cluster }, worker) => {
    if (cluster !== undefined)
      rows.set(centroids.subarray(cluster * width, (cluster + 1) * width), worker * width)
  })
  return rows
}

/** NaN would make every product NaN: zeros are similar to nothing. */
const knownRows = (centroids: Float32Array) => centroids.map(value => (Number.isNaN(value) ? 0 : value))

function nearest(costs: Float64Array, clusters: number): Int32Array {
  return Int32Array.from({ length: costs.length / clusters }, (_, row) => {
    let best = 0
    for (let k = 1; k < clusters; k++)
      if (costs[row * clusters + k]! < costs[row * clusters + best]!) best = k
    return best
  })
}

function homesOf(requests: readonly InflightRequest[], centroids: Float32Array, width: number): Homes {
  const known = requests.filter(({ signature }) => signature.length === width)
  const packed = joined(
    known.map(({ signature }) => ({ row: 0, signature })),
    width,
  )
  const clusters = centroids.length / width
  return {
    cluster:
      known.length === 0 ? [] : nearest(costsTo(packedRows(packed, width), centroids, clusters), clusters),
    worker: known.map(({ worker }) => worker),
  }
}

function judgedRows(
  { reported }: SampleSnapshot,
  rows: readonly SignedRow[],
): { readonly rows: readonly SignedRow[]; readonly judgedBy: JudgedBy } {
  const known = rows.filter(({ row }) => reported[row] === 1)
  return known.length >= MIN_REPORTED
    ? { rows: known, judgedBy: 'reported' }
    : { rows, judgedBy: 'predicted' }
}

const asChance = (part: number) => Math.min(MAX_CHANCE, part / 255)

/**
 * Decode pattern of a request in 255ths of its steps: the reported one, or else the shares of its prompt ×
 * top_k.
 */
function patternAt(
  { patterns, reported, counts, cells }: SampleSnapshot,
  row: number,
  { experts, topK }: Pick<ArtifactAbout, 'experts' | 'topK'>,
): Float32Array {
  const from = row * cells
  if (patterns !== undefined && reported[row] === 1)
    return Float32Array.from(patterns.subarray(from, from + cells))
  const pattern = new Float32Array(cells)
  for (let layer = 0; layer < cells; layer += experts) {
    let sum = 0
    for (let c = layer; c < layer + experts; c++) sum += counts[from + c]!
    if (sum > 0)
      for (let c = layer; c < layer + experts; c++)
        pattern[c] = Math.min(255, (255 * topK * counts[from + c]!) / sum)
  }
  return pattern
}

function artifactFrom(
  { sample, artifact: old }: AttemptInput,
  rows: readonly SignedRow[],
  heldOut: readonly SignedRow[],
  clusters: FittedClusters,
): Artifact {
  const { cells, plain } = sample
  const workers = clusters.sizes.length
  const width = dimensionsOf(old.primary.model)
  const patterns = new Uint8Array(rows.length * cells)
  rows.forEach(({ row }, at) =>
    patterns.set(Uint8Array.from(patternAt(sample, row, old.about), Math.round), at * cells),
  )
  const about: ArtifactAbout = {
    ...old.about,
    workers,
    sizes: clusters.sizes,
    ...clusters.stats,
    // Of requests that the clusters have not seen, so that live traffic is not compared with the best case.
    bestSimilarity: statsOf(packedRows(joined(heldOut, width), width), clusters.centroids).bestSimilarity,
    domains: [], // live requests have no labels
    traceRequests: rows.length,
    version: VERSION,
  }
  return {
    about,
    primary: { ...old.primary, centroids: clusters.centroids, signatures: joined(rows, width) },
    fallback: old.fallback && plain && fallbackFrom(old.fallback, plain, cells, rows, clusters),
    calibration: { requests: rows.length, clusterOf: Uint16Array.from(clusters.clusterOf), patterns },
  }
}

function statsOf(points: PackedRows, centroids: Float32Array) {
  const clusters = centroids.length / points.width
  const costs = costsTo(points, centroids, clusters)
  const lengths = Float64Array.from({ length: points.rows }, (_, row) => points.length(row))
  return similarityStats(costs, lengths, nearest(costs, clusters), clusters)
}

function fallbackFrom(
  old: FittedSignature,
  plain: Uint16Array,
  cells: number,
  rows: readonly SignedRow[],
  { clusterOf, sizes }: FittedClusters,
): FittedSignature {
  const width = dimensionsOf(old.model)
  const signed = rows.map(({ row }) => ({
    row,
    signature: signatureOf(old.model, plain.subarray(row * cells, (row + 1) * cells))!,
  }))
  const signatures = joined(signed, width)
  const centroids = centroidsOf(unpackSignatures({ model: old.model, signatures }), clusterOf, sizes.length)
  return { ...old, signatures, centroids }
}
