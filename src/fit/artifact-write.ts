import { TRANSFORM } from '../signature/transform.ts'
import { type TensorToWrite, writeSafetensors } from '../trace/safetensors-write.ts'
import type { Artifact, ArtifactAbout, FittedSignature } from './artifact.ts'

export const ARTIFACT_FORMAT = 'eldr.artifact.v1'
/** Prefix of the fallback's tensors and metadata keys. */
export const FALLBACK = 'fallback_'

/** Metadata key of the lineage, as JSON. */
export const LINEAGE = 'lineage'

/** The same artifact gives the same bytes. */
export async function writeArtifact(
  path: string,
  { about, primary, fallback, calibration }: Artifact,
): Promise<void> {
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
  if (calibration.domain)
    tensors['calibration_domain'] = { dtype: 'U8', shape: [calibration.requests], data: calibration.domain }
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
    ...(about.lineage && { [LINEAGE]: JSON.stringify(about.lineage) }),
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
    [`${prefix}calibration_signatures`]: {
      dtype: 'I16',
      shape: [requests, kept, experts],
      data: fitted.signatures,
    },
  } satisfies Record<string, TensorToWrite>
}

function signatureMetadata(
  prefix: string,
  { model, recentHalfLife, rho, curve }: FittedSignature,
): Record<string, string> {
  return {
    [`${prefix}transform`]: model.transform,
    [`${prefix}reads`]: TRANSFORM[model.transform].source,
    ...(recentHalfLife !== undefined && { [`${prefix}recent_half_life`]: `${recentHalfLife}` }),
    ...(rho !== undefined && { [`${prefix}rho`]: `${rho}` }),
    ...(curve !== undefined && {
      [`${prefix}rho_curve`]: JSON.stringify({ order: curve.order, rho: curve.rho, peak: curve.peak }),
    }),
  }
}
