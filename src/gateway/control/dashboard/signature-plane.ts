/** The artifact's calibration requests in a plane, and where live requests lie in it. Computed beside the event loop when somebody asks. */
import type { Artifact } from '../../../fit/artifact.ts'
import type { RoutableRequest } from '../../../policy/decode-policy.ts'
import { dimensionsOf } from '../../../signature/signature.ts'
import type { PlaneResult } from '../../routing/fit-jobs.ts'
import type { OffThread } from '../../routing/off-thread.ts'
import type { LoadedArtifact } from '../../routing/routing-plan.ts'
import { isThroughFallback } from '../../routing/table-policy.ts'
import type { PlaneView } from '../../observe/insight/wire.ts'

export class SignaturePlane {
  readonly #offThread: OffThread
  readonly #loaded: () => LoadedArtifact | undefined
  /** Of the signatures that it was made from: a re-fit has the same ones, and other centroids. */
  #made: { readonly of: Int16Array; readonly plane: PlaneResult } | undefined
  #making: { readonly of: Int16Array; readonly result: Promise<PlaneResult> } | undefined

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

  /** Where a live request lies; undefined until somebody has asked for the plane. */
  place(request: RoutableRequest): readonly [number, number] | undefined {
    const { signature } = request
    const primary = this.#loaded()?.artifact.primary
    if (signature === undefined || primary === undefined || this.#made?.of !== primary.signatures)
      return undefined
    return signature.length === dimensionsOf(primary.model) && !isThroughFallback(request)
      ? project(this.#made.plane, signature)
      : undefined
  }

  async #planeOf({ artifact }: LoadedArtifact): Promise<PlaneResult> {
    const of = artifact.primary.signatures
    if (this.#made?.of === of) return this.#made.plane
    if (this.#making?.of !== of)
      this.#making = { of, result: this.#offThread.run('plane', planeInput(artifact)) }
    const making = this.#making
    const forget = () => {
      if (this.#making === making) this.#making = undefined
    }
    const plane = await making.result.finally(forget)
    this.#made = { of, plane }
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
