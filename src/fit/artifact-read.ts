import { EldrError } from '../errors.ts'
import { UNIT } from '../math/packed-rows.ts'
import { dimensionsOf, type SignatureModel } from '../signature/signature.ts'
import { TRANSFORM, TRANSFORMS, type TransformName } from '../signature/transform.ts'
import * as check from '../trace/file-checks.ts'
import { quoted } from '../trace/quoted.ts'
import { type SafetensorsFile, withSafetensors } from '../trace/safetensors-file.ts'
import type { Artifact, ArtifactAbout, CalibrationSet, FittedSignature, Lineage } from './artifact.ts'
import { ARTIFACT_FORMAT, FALLBACK, LINEAGE } from './artifact-write.ts'
import { sizesOf } from './cluster.ts'

const MAX_WORKERS = 65_535

/**
 * Reads and validates an artifact: a file that contradicts itself is rejected, so that a gateway can use the
 * result without further checks.
 */
export function readArtifact(path: string): Promise<Artifact> {
  return withSafetensors(path, artifactOf)
}

export async function artifactOf(from: SafetensorsFile): Promise<Artifact> {
  check.checkFormat(from.path, from.metadata['format'], ARTIFACT_FORMAT)
  const about = aboutOf(from)
  const calibration = await calibrationOf(from, about)
  const counted = sizesOf(calibration.clusterOf, about.workers)
  if (counted.some((size, k) => size !== about.sizes[k])) {
    throw check.badMetadata(
      from.path,
      `sizes ${quoted(about.sizes)}`,
      `those of calibration_cluster, ${quoted(counted)}`,
    )
  }
  const primary = await signatureOf('', from, about, calibration.requests)
  const fallback =
    from.metadata[`${FALLBACK}transform`] === undefined
      ? undefined
      : await signatureOf(FALLBACK, from, about, calibration.requests)
  return { about, primary, fallback, calibration }
}

function aboutOf({ path, metadata }: SafetensorsFile): ArtifactAbout {
  const experts = check.wholeNumber(path, metadata, 'experts', 65_536)
  const workers = check.wholeNumber(path, metadata, 'workers', MAX_WORKERS)
  const balance = metadata['balance']
  if (balance !== 'exact' && balance !== 'none')
    throw check.badMetadata(path, `balance ${quoted(balance)}`, 'exact or none')
  const perWorker =
    (fine: (value: number) => boolean) =>
    (value: unknown): value is number[] =>
      check.isNumberList(value) && value.length === workers && value.every(fine)
  const isSize = perWorker(size => Number.isInteger(size) && size >= 0)
  const isCosines = perWorker(value => Math.abs(value) <= 1.03)
  return {
    model: check.textOf(path, metadata, 'model'),
    layers: check.wholeNumber(path, metadata, 'layers', 4_096),
    experts,
    topK: check.wholeNumber(path, metadata, 'top_k', experts),
    workers,
    workload: metadata['workload'],
    domains: check.namesOf(path, metadata, 'domains', 256),
    balance,
    seed: check.wholeNumber(path, metadata, 'seed', Number.MAX_SAFE_INTEGER, 0),
    restarts: check.wholeNumber(path, metadata, 'restarts', 10_000),
    transforms: check.jsonOf(path, metadata, 'transforms', 'ρ by transform', isRhos),
    sizes: check.jsonOf(path, metadata, 'sizes', `an integer for each of ${workers} workers`, isSize),
    meanSimilarity: check.optionalNumber(path, metadata, 'mean_similarity', -1.03, 1.03) ?? 0,
    clusterSimilarity: check.jsonOf(
      path,
      metadata,
      'cluster_similarity',
      `a cosine for each of ${workers} workers`,
      isCosines,
    ),
    bestSimilarity: check
      .jsonOf(path, metadata, 'best_similarity', 'pairs of an ascending quantile and a cosine', isQuantiles)
      .map(([q, value]) => ({ q: q!, value: value! })),
    traceSha256: check.textOf(path, metadata, 'trace_sha256'),
    traceRequests: check.wholeNumber(path, metadata, 'trace_requests', Number.MAX_SAFE_INTEGER),
    version: check.textOf(path, metadata, 'eldr_version'),
    lineage:
      metadata[LINEAGE] === undefined
        ? undefined
        : check.jsonOf(
            path,
            metadata,
            LINEAGE,
            'the origin of an artifact made from live traffic',
            isLineage,
          ),
  }
}

export function isLineage(value: unknown): value is Lineage {
  const { parentSha256, judgedBy, ...numbers } = (value ?? {}) as Partial<Record<keyof Lineage, unknown>>
  const { atMs, sampleRequests, heldOutRequests, gain, gainHalf } = numbers
  return (
    typeof parentSha256 === 'string' &&
    /^[\da-f]{64}$/.test(parentSha256) &&
    (judgedBy === 'reported' || judgedBy === 'predicted') &&
    [atMs, sampleRequests, heldOutRequests, gain, gainHalf].every(Number.isFinite)
  )
}

async function calibrationOf(
  from: SafetensorsFile,
  { layers, experts, workers, domains }: ArtifactAbout,
): Promise<CalibrationSet> {
  const requests = from.info('calibration_cluster').shape[0] ?? 0
  const clusterOf = await check.readTensor(from, 'calibration_cluster', 'U16', [requests])
  check.checkValues(
    from.path,
    'calibration_cluster',
    clusterOf,
    cluster => cluster < workers,
    `clusters below ${workers}`,
  )
  const patterns = from.tensors.has('calibration_patterns')
    ? await check.readTensor(from, 'calibration_patterns', 'U8', [requests, layers, experts])
    : undefined
  const domain = from.tensors.has('calibration_domain')
    ? await check.readTensor(from, 'calibration_domain', 'U8', [requests])
    : undefined
  if (domain)
    check.checkValues(
      from.path,
      'calibration_domain',
      domain,
      index => index < domains.length,
      `one of ${domains.length} domains`,
    )
  return { requests, clusterOf, patterns, domain }
}

async function signatureOf(
  prefix: string,
  from: SafetensorsFile,
  { layers, experts, workers }: ArtifactAbout,
  requests: number,
): Promise<FittedSignature> {
  const { path, metadata } = from
  const transform = metadata[`${prefix}transform`] as TransformName
  const reads = metadata[`${prefix}reads`]
  if (!TRANSFORMS.includes(transform))
    throw check.badMetadata(path, `transform ${quoted(transform)}`, `one of ${TRANSFORMS.join(', ')}`)
  if (reads !== TRANSFORM[transform].source)
    throw check.badMetadata(
      path,
      `reads ${quoted(reads)}`,
      `${TRANSFORM[transform].source}, as ${transform} needs`,
    )
  const mask = await check.readTensor(from, `${prefix}layer_mask`, 'U8', [layers])
  check.checkValues(path, `${prefix}layer_mask`, mask, bit => bit <= 1, '0 or 1')
  const kept = Uint16Array.from(Array.from(mask.keys()).filter(layer => mask[layer] !== 0))
  if (kept.length === 0)
    throw new EldrError('ELDR_TENSOR_BAD_VALUE', {
      file: path,
      found: `no layer in ${prefix}layer_mask`,
      expected: 'at least one',
    })
  const weights = await check.readTensor(from, `${prefix}weights`, 'F32', [kept.length, experts])
  check.checkValues(
    path,
    `${prefix}weights`,
    weights,
    value => value >= 0 && value < Infinity,
    'weights of 0 or more',
  )
  const model: SignatureModel = { transform, modelLayers: layers, experts, layers: kept, weights }
  const centroids = await check.readTensor(from, `${prefix}centroids`, 'F32', [workers, kept.length, experts])
  checkUnit(path, `${prefix}centroids`, centroids, { width: dimensionsOf(model) })
  if (centroids.every(value => value === 0))
    throw new EldrError('ELDR_TENSOR_BAD_VALUE', {
      file: path,
      found: `only zeros in ${prefix}centroids`,
      expected: 'unit vectors',
    })
  const signatures = await check.readTensor(from, `${prefix}calibration_signatures`, 'I16', [
    requests,
    kept.length,
    experts,
  ])
  checkUnit(path, `${prefix}calibration_signatures`, signatures, {
    width: dimensionsOf(model),
    unit: UNIT,
    mayBeZero: prefix === FALLBACK,
  })
  const halfLife = check.optionalNumber(path, metadata, `${prefix}recent_half_life`, Number.MIN_VALUE, 1e9)
  const rho = check.optionalNumber(path, metadata, `${prefix}rho`, -1, 1)
  const curve =
    metadata[`${prefix}rho_curve`] === undefined
      ? undefined
      : check.jsonOf(
          path,
          metadata,
          `${prefix}rho_curve`,
          'order, rho and peak of a layer curve',
          isCurve(layers),
        )
  return {
    model,
    centroids,
    signatures,
    recentHalfLife: halfLife,
    rho,
    curve: curve && { transform, order: curve.order, rho: curve.rho, peak: curve.peak },
  }
}

interface Curve {
  order: number[]
  rho: number[]
  peak: number
}

/** A greedy curve: distinct layers, ρ after each, and the peak. */
function isCurve(layers: number): (value: unknown) => value is Curve {
  return (value): value is Curve => {
    const { order, rho, peak } = (value ?? {}) as Partial<Curve>
    if (!check.isNumberList(order) || !check.isNumberList(rho) || order.length !== rho.length) return false
    const known =
      order.every(layer => Number.isInteger(layer) && layer >= 0 && layer < layers) &&
      new Set(order).size === order.length
    return (
      known &&
      rho.every(value => Math.abs(value) <= 1) &&
      Number.isInteger(peak) &&
      peak! >= 1 &&
      peak! <= order.length
    )
  }
}

const isRhos = (value: unknown): value is Record<string, number> =>
  typeof value === 'object' &&
  value !== null &&
  !Array.isArray(value) &&
  check.isNumberList(Object.values(value))

const isQuantiles = (value: unknown): value is number[][] =>
  Array.isArray(value) &&
  value.length > 0 &&
  value.every(
    (item, at) =>
      check.isNumberList(item) &&
      item.length === 2 &&
      item[0]! >= 0 &&
      item[0]! <= 1 &&
      (at === 0 || item[0]! > (value as number[][])[at - 1]![0]!),
  )

/**
 * Rows are compared by cosine without normalising them again, so their length must be 1. A row of length 0
 * matches nothing; calibration requests without a signature are not kept.
 */
function checkUnit(
  file: string,
  name: string,
  rows: Float32Array | Int16Array,
  { width, unit = 1, mayBeZero = true }: { width: number; unit?: number; mayBeZero?: boolean },
): void {
  for (let from = 0, row = 0; from < rows.length; from += width, row++) {
    let squares = 0
    for (let at = from; at < from + width; at++) squares += rows[at]! * rows[at]!
    const length = Math.sqrt(squares) / unit
    if (!(mayBeZero && length === 0) && !(Math.abs(length - 1) < 0.03)) {
      throw new EldrError('ELDR_TENSOR_BAD_VALUE', {
        file,
        found: `length ${length} in row ${row} of ${name}`,
        expected: 'unit vectors',
      })
    }
  }
}
