/** What a routing table is made from, and how it becomes one. A plan never changes; a change of anything makes another. */
import type { Artifact } from '../../fit/artifact.ts'
import { descriptorOf, type PolicyName } from '../../policy/decode-policy.ts'
import { dimensionsOf } from '../../signature/signature.ts'
import { Refusal } from '../http/refusal.ts'
import type { RoutingSettings } from '../config/settings.ts'
import { forRefit, withRefit } from './fit-jobs.ts'
import type { OffThread } from './off-thread.ts'
import type { Shape } from './read-experts.ts'
import { createRoutingTable, type RoutingTable, type TableOptions } from './routing-table.ts'
import {
  arrangeSeats,
  misfit,
  type SeatedWorker,
  type Seats,
  seatsInOrder,
  wantedCentroids,
} from './cluster-assignment.ts'

export interface Plan {
  readonly policy: PolicyName
  readonly tau: number
  readonly loaded?: LoadedArtifact
  /** Empty without an artifact. */
  readonly seats: Seats
  /** Of the model, where no artifact tells it. */
  readonly shape?: Shape
}

/** An artifact and what it goes by. After a re-fit file and hash are still those of what was read. */
export interface LoadedArtifact {
  readonly artifact: Artifact
  readonly sha256: string
  readonly file: string
}

export function firstPlan({ policy, tau }: RoutingSettings, loaded: LoadedArtifact | undefined): Plan {
  return withArtifact({ policy, tau, seats: new Map() }, loaded)
}

/** As a file has it: the k-th cluster is the k-th decode worker's. */
export function withArtifact(plan: Plan, loaded: LoadedArtifact | undefined): Plan {
  return loaded === undefined ? plan : { ...plan, loaded, seats: seatsInOrder(loaded.artifact.about.workers) }
}

export type TableSettings = Pick<TableOptions, 'minCovered' | 'cost' | 'unseen'>

/** A sentence in place of a table says what is missing. */
export function tableOf(
  { policy, tau, loaded, seats, shape }: Plan,
  workers: readonly SeatedWorker[],
  settings: TableSettings,
): RoutingTable | string {
  return createRoutingTable({
    policy,
    tau,
    workers: roomFor(workers),
    ...settings,
    artifact: loaded?.artifact,
    seats: loaded && seats,
    shape,
  })
}

/** Policies keep what they know of workers by index. */
export function roomFor(workers: readonly SeatedWorker[]): number {
  return workers.reduce((most, { index }) => Math.max(most, index + 1), 1)
}

/** Why the artifact's clusters do not fit the workers. Undefined for policies that do not go by clusters. */
export function misfitOf(
  { policy, loaded, seats }: Plan,
  workers: readonly SeatedWorker[],
): string | undefined {
  return loaded === undefined || !descriptorOf(policy).needs.includes('clusters')
    ? undefined
    : misfit(workers, loaded.artifact.about.workers, seats)
}

/** The plan with clusters for the workers there are, or for as many as told. Rejects with the reason where it cannot be. */
export async function refitted(
  plan: Plan,
  workers: readonly SeatedWorker[],
  offThread: OffThread,
  clusters = workers.length,
): Promise<Plan & { readonly loaded: LoadedArtifact }> {
  const { loaded } = plan
  if (loaded === undefined) throw refused('There is no artifact.')
  if (clusters === 0) throw refused('There is no decode worker.')
  const seats = arrangeSeats(workers, clusters)
  if (typeof seats === 'string') throw refused(`${seats}.`)
  const { artifact, file } = loaded
  const width = dimensionsOf(artifact.primary.model)
  const wanted = wantedCentroids(
    workers,
    { centroids: artifact.primary.centroids, seats: plan.seats },
    seats,
    clusters,
    width,
  )
  const result = await offThread.run('refit', { file, artifact: forRefit(artifact, wanted), clusters }, [
    wanted.buffer,
  ])
  return { ...plan, loaded: { ...loaded, artifact: withRefit(artifact, result) }, seats }
}

const refused = (words: string) => new Refusal('ELDR_REFIT_REFUSED', { words })
