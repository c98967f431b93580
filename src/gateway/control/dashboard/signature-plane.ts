/**
 * Projects the artifact's calibration requests and live requests to a plane. Computed on demand, off the main
 * thread.
 */
import type { Artifact } from '../../../fit/artifact.ts'
import type { RoutableRequest } from '../../../policy/decode-policy.ts'
import { dimensionsOf } from '../../../signature/signature.ts'
import type { PlaneResult } from '../../routing/fit-jobs.ts'
import type { OffThread } from '../../routing/off-thread.ts'
import type { LoadedArtifact } from '../../routing/routing-plan.ts'
import { usesFallback } from '../../routing/table-policy.ts'
import type { PlaneView } from '../../observe/insight/wire.ts'

export class SignaturePlane {
  readonly #offThread: OffThread
  readonly #loaded: () => LoadedArtifact | undefined
  /** Keyed by the signatures: a refit keeps them and changes the centroids. */
  #cached: { readonly signatures: Int16Array; readonly plane: PlaneResult } | undefined
  #pending: { readonly signatures: Int16Array; readonly result: Promise<PlaneResult> } | undefined

  constructor(offThread: OffThread, loaded: () => LoadedArtifact | undefined) {
    this.#offThread = offThread
    this.#loaded = loaded
  }

  /** Undefined without an artifact. */
  async view(): Promise<PlaneView | undefined> {
    const loaded = this.#loaded()
    if (loaded === undefined) return undefined
    const plane = await this.#planeOf(loaded)
    const { artifact, sha256 } = loaded
    const { about, primary, calibration } = artifact
    const width = dimensionsOf(primary.model)
    const centroids = Array.from({ length: about.workers }, (_, k) =>
      project(plane, primary.centroids.subarray(k * width, (k + 1) * width)),
    )
    return {
      sha256,
      domains: about.domains,
      points: Array.from(plane.rows, (row, at) => [
        short(plane.coordinates[2 * at]!),
        short(plane.coordinates[2 * at + 1]!),
        calibration.clusterOf[row]!,
        calibration.domain?.[row] ?? -1,
      ]),
      centroids,
      explained: plane.explained,
    }
  }

  /** Position of a live request; undefined until the plane has been requested. */
  place(request: RoutableRequest): readonly [number, number] | undefined {
    const { signature } = request
    const primary = this.#loaded()?.artifact.primary
    if (signature === undefined || primary === undefined || this.#cached?.signatures !== primary.signatures)
      return undefined
    return signature.length === dimensionsOf(primary.model) && !usesFallback(request)
      ? project(this.#cached.plane, signature)
      : undefined
  }

  async #planeOf({ artifact }: LoadedArtifact): Promise<PlaneResult> {
    const { signatures } = artifact.primary
    if (this.#cached?.signatures === signatures) return this.#cached.plane
    if (this.#pending?.signatures !== signatures)
      this.#pending = { signatures, result: this.#offThread.run('plane', planeInput(artifact)) }
    const pending = this.#pending
    const forget = () => {
      if (this.#pending === pending) this.#pending = undefined
    }
    const plane = await pending.result.finally(forget)
    this.#cached = { signatures, plane }
    return plane
  }
}

function planeInput({ primary, calibration }: Artifact) {
  return {
    signatures: primary.signatures,
    requests: calibration.requests,
    width: dimensionsOf(primary.model),
  }
}

function project({ axes, offsets }: PlaneResult, x: Float32Array): [number, number] {
  const width = x.length
  let [first, second] = [0, 0]
  for (let d = 0; d < width; d++) {
    first += x[d]! * axes[d]!
    second += x[d]! * axes[width + d]!
  }
  return [short(first - offsets[0]), short(second - offsets[1])]
}

function short(value: number): number {
  return Math.round(value * 1e4) / 1e4
}
