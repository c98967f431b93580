import { EldrError } from '../errors.ts'
import { UNIT } from '../math/packed-rows.ts'
import { dimensionsOf, type SignatureModel } from '../signature/signature.ts'
import { TRANSFORM, TRANSFORMS, type TransformName } from '../signature/transform.ts'
import * as check from '../trace/file-checks.ts'
import { type SafetensorsFile, withSafetensors } from '../trace/safetensors-file.ts'
import { type TensorToWrite, writeSafetensors } from '../trace/safetensors-write.ts'
import type { Artifact, ArtifactAbout, CalibrationSet, FittedSignature } from './artifact.ts'

export const ARTIFACT_FORMAT = 'eldr.artifact.v1'
/** Tensors and metadata of the fallback carry this before their names. */
const FALLBACK = 'fallback_'
const MAX_WORKERS = 65_535

/** The same artifact gives the same bytes. */
export async function writeArtifact(path: string, { about, primary, fallback, calibration }: Artifact): Promise<void> {
  const tensors: Record<string, TensorToWrite> = {
    ...signatureTensors('', about, primary, calibration.requests),
    ...(fallback && signatureTensors(FALLBACK, about, fallback, calibration.requests)),
    calibration_cluster: { dtype: 'U16', shape: [calibration.requests], data: calibration.clusterOf },
  }
  if (calibration.patterns) {
    tensors['calibration_patterns'] = {
      dtype: 'U8',
      shape: [calibration.requests, about.layers, about.experts],
      data: calibration.patterns,
    }
  }
  if (calibration.domain) tensors['calibration_domain'] = { dtype: 'U8', shape: [calibration.requests], data: calibration.domain }
  const metadata: Record<string, string> = {
    format: ARTIFACT_FORMAT,
    model: about.model,
    layers: `${about.layers}`,
    experts: `${about.experts}`,
    top_k: `${about.topK}`,
    workers: `${about.workers}`,
    ...(about.workload !== undefined && { workload: about.workload }),
    ...(about.domains.length > 0 && { domains: about.domains.join(',') }),
    ...signatureMetadata('', primary),
    ...(fallback && signatureMetadata(FALLBACK, fallback)),
    balance: about.balance,
    seed: `${about.seed}`,
    restarts: `${about.restarts}`,
    transforms: JSON.stringify(about.transforms),
    sizes: JSON.stringify(about.sizes),
    mean_similarity: `${about.meanSimilarity}`,
    cluster_similarity: JSON.stringify(about.clusterSimilarity),
    best_similarity: JSON.stringify(about.bestSimilarity.map(({ q, value }) => [q, value])),
    trace_sha256: about.traceSha256,
    trace_requests: `${about.traceRequests}`,
    eldr_version: about.version,
  }
  await writeSafetensors(path, { metadata, tensors })
}

function signatureTensors(
  prefix: string,
  { layers, workers, experts }: ArtifactAbout,
  { model, ...fitted }: FittedSignature,
  requests: number,
) {
  const kept = model.layers.length
  const mask = new Uint8Array(layers)
  for (const layer of model.layers) mask[layer] = 1
  return {
    [`${prefix}layer_mask`]: { dtype: 'U8', shape: [layers], data: mask },
    [`${prefix}weights`]: { dtype: 'F32', shape: [kept, experts], data: model.weights },
    [`${prefix}centroids`]: { dtype: 'F32', shape: [workers, kept, experts], data: fitted.centroids },
    [`${prefix}calibration_signatures`]: { dtype: 'I16', shape: [requests, kept, experts], data: fitted.signatures },
  } satisfies Record<string, TensorToWrite>
}

function signatureMetadata(prefix: string, { model, recentHalfLife, rho, curve }: FittedSignature): Record<string, string> {
  return {
    [`${prefix}transform`]: model.transform,
    [`${prefix}reads`]: TRANSFORM[model.transform].source,
    ...(recentHalfLife !== undefined && { [`${prefix}recent_half_life`]: `${recentHalfLife}` }),
    ...(rho !== undefined && { [`${prefix}rho`]: `${rho}` }),
    ...(curve !== undefined && { [`${prefix}rho_curve`]: JSON.stringify({ order: curve.order, rho: curve.rho, peak: curve.peak }) }),
  }
}

export function readArtifact(path: string): Promise<Artifact> {
  return withSafetensors(path, artifactOf)
}

export async function artifactOf(from: SafetensorsFile): Promise<Artifact> {
  check.checkFormat(from.path, from.metadata['format'], ARTIFACT_FORMAT)
  const about = aboutOf(from)
  const calibration = await calibrationOf(from, about)
  const primary = await signatureOf('', from, about, calibration.requests)
  const fallback =
    from.metadata[`${FALLBACK}transform`] === undefined ? undefined : await signatureOf(FALLBACK, from, about, calibration.requests)
  return { about, primary, ...(fallback && { fallback }), calibration }
}

function aboutOf({ path, metadata }: SafetensorsFile): ArtifactAbout {
  const experts = check.wholeNumber(path, metadata, 'experts', 65_536)
  const workers = check.wholeNumber(path, metadata, 'workers', MAX_WORKERS)
  const balance = metadata['balance']
  if (balance !== 'exact' && balance !== 'none') throw check.badMetadata(path, `balance ${balance}`, 'exact or none')
  const isPairs = (value: unknown): value is number[][] =>
    Array.isArray(value) && value.every(item => check.isNumberList(item) && item.length === 2)
  const isRecord = (value: unknown): value is Record<string, number> =>
    typeof value === 'object' && value !== null && !Array.isArray(value) && check.isNumberList(Object.values(value))
  const sizes = check.jsonOf(path, metadata, 'sizes', 'a list of cluster sizes', check.isNumberList)
  if (sizes.length !== workers) throw check.badMetadata(path, `${sizes.length} sizes`, `one for each of ${workers} workers`)
  const clusterSimilarity = check.jsonOf(path, metadata, 'cluster_similarity', 'a list of similarities', check.isNumberList)
  if (clusterSimilarity.length !== workers)
    throw check.badMetadata(path, `${clusterSimilarity.length} similarities`, `one for each of ${workers} workers`)
  return {
    model: check.textOf(path, metadata, 'model'),
    layers: check.wholeNumber(path, metadata, 'layers', 4_096),
    experts,
    topK: check.wholeNumber(path, metadata, 'top_k', experts),
    workers,
    ...(metadata['workload'] !== undefined && { workload: metadata['workload'] }),
    domains: check.namesOf(path, metadata, 'domains', 256),
    balance,
    seed: check.wholeNumber(path, metadata, 'seed', Number.MAX_SAFE_INTEGER, 0),
    restarts: check.wholeNumber(path, metadata, 'restarts', 1_000_000),
    transforms: check.jsonOf(path, metadata, 'transforms', 'ρ by transform', isRecord),
    sizes,
    meanSimilarity: check.optionalNumber(path, metadata, 'mean_similarity', -1.001, 1.001) ?? 0,
    clusterSimilarity,
    bestSimilarity: check
      .jsonOf(path, metadata, 'best_similarity', 'pairs of quantile and value', isPairs)
      .map(([q, value]) => ({ q: q!, value: value! })),
    traceSha256: check.textOf(path, metadata, 'trace_sha256'),
    traceRequests: check.wholeNumber(path, metadata, 'trace_requests', Number.MAX_SAFE_INTEGER),
    version: check.textOf(path, metadata, 'eldr_version'),
  }
}

async function calibrationOf(from: SafetensorsFile, { layers, experts, workers, domains }: ArtifactAbout): Promise<CalibrationSet> {
  const requests = from.info('calibration_cluster').shape[0] ?? 0
  const clusterOf = await check.readTensor(from, 'calibration_cluster', 'U16', [requests])
  check.checkValues(from.path, 'calibration_cluster', clusterOf, cluster => cluster < workers, `clusters below ${workers}`)
  const patterns = from.tensors.has('calibration_patterns')
    ? await check.readTensor(from, 'calibration_patterns', 'U8', [requests, layers, experts])
    : undefined
  const domain = from.tensors.has('calibration_domain') ? await check.readTensor(from, 'calibration_domain', 'U8', [requests]) : undefined
  if (domain)
    check.checkValues(from.path, 'calibration_domain', domain, index => index < domains.length, `one of ${domains.length} domains`)
  return { requests, clusterOf, ...(patterns && { patterns }), ...(domain && { domain }) }
}

async function signatureOf(
  prefix: string,
  from: SafetensorsFile,
  { layers, experts, workers }: ArtifactAbout,
  requests: number,
): Promise<FittedSignature> {
  const { path, metadata } = from
  const transform = metadata[`${prefix}transform`] as TransformName
  if (!TRANSFORMS.includes(transform)) throw check.badMetadata(path, `transform ${transform}`, `one of ${TRANSFORMS.join(', ')}`)
  const mask = await check.readTensor(from, `${prefix}layer_mask`, 'U8', [layers])
  const kept = Uint16Array.from(Array.from(mask.keys()).filter(layer => mask[layer] !== 0))
  if (kept.length === 0)
    throw new EldrError('ELDR_TENSOR_BAD_VALUE', { file: path, found: `no layer in ${prefix}layer_mask`, expected: 'one at least' })
  const weights = await check.readTensor(from, `${prefix}weights`, 'F32', [kept.length, experts])
  check.checkValues(path, `${prefix}weights`, weights, value => value >= 0 && value < Infinity, 'weights of 0 or more')
  const model: SignatureModel = { transform, modelLayers: layers, experts, layers: kept, weights }
  const centroids = await check.readTensor(from, `${prefix}centroids`, 'F32', [workers, kept.length, experts])
  checkUnit(path, `${prefix}centroids`, centroids, dimensionsOf(model))
  const signatures = await check.readTensor(from, `${prefix}calibration_signatures`, 'I16', [requests, kept.length, experts])
  checkUnit(path, `${prefix}calibration_signatures`, signatures, dimensionsOf(model), UNIT)
  const halfLife = check.optionalNumber(path, metadata, `${prefix}recent_half_life`, Number.MIN_VALUE, 1e9)
  const rho = check.optionalNumber(path, metadata, `${prefix}rho`, -1, 1)
  const curve =
    metadata[`${prefix}rho_curve`] === undefined
      ? undefined
      : check.jsonOf(path, metadata, `${prefix}rho_curve`, 'order, rho and peak of a layer curve', isCurve)
  return {
    model,
    centroids,
    signatures,
    ...(halfLife !== undefined && { recentHalfLife: halfLife }),
    ...(rho !== undefined && { rho }),
    ...(curve && { curve: { transform, order: curve.order, rho: curve.rho, peak: curve.peak } }),
  }
}

interface Curve {
  order: number[]
  rho: number[]
  peak: number
}

function isCurve(value: unknown): value is Curve {
  const { order, rho, peak } = (value ?? {}) as Partial<Curve>
  return (
    check.isNumberList(order) &&
    check.isNumberList(rho) &&
    order.length === rho.length &&
    Number.isInteger(peak) &&
    peak! >= 1 &&
    peak! <= order.length
  )
}

/** Rows are compared by cosine without dividing by their length again; one of length 0 matches nothing. */
function checkUnit(file: string, name: string, rows: Float32Array | Int16Array, width: number, unit = 1): void {
  for (let from = 0, row = 0; from < rows.length; from += width, row++) {
    let squares = 0
    for (let at = from; at < from + width; at++) squares += rows[at]! * rows[at]!
    const length = Math.sqrt(squares) / unit
    if (length !== 0 && !(Math.abs(length - 1) < 0.01)) {
      throw new EldrError('ELDR_TENSOR_BAD_VALUE', { file, found: `length ${length} in row ${row} of ${name}`, expected: 'unit vectors' })
    }
  }
}
