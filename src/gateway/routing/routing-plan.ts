/**
 * The inputs of a routing table, and how it is built from them. Plans are immutable: every change makes a new
 * one.
 */
import type { Artifact } from '../../fit/artifact.ts'
import { descriptorOf, type PolicyName } from '../../policy/decode-policy.ts'
import { dimensionsOf } from '../../signature/signature.ts'
import { Refusal } from '../http/refusal.ts'
import type { RoutingSettings } from '../config/settings.ts'
import { forRefit, withRefit } from './fit-jobs.ts'
import type { OffThread } from './off-thread.ts'
import type { Shape } from './read-experts.ts'
import { createRoutingTable, type TableOptions, type TableResult } from './routing-table.ts'
import {
  type AssignableWorker,
  assignClusters,
  type ClusterAssignment,
  identityAssignment,
  misfit,
  targetCentroids,
} from './cluster-assignment.ts'

export interface Plan {
  readonly policy: PolicyName
  readonly tau: number
  readonly loaded?: LoadedArtifact
  /** Empty without an artifact. */
  readonly assignment: ClusterAssignment
  /** Shape of the model, if it is known without an artifact. */
  readonly shape?: Shape
}

/** An artifact with its name. A refit keeps the file name and hash of the file that was read. */
export interface LoadedArtifact {
  readonly artifact: Artifact
  readonly sha256: string
  readonly file: string
}

export function firstPlan({ policy, tau }: RoutingSettings, loaded: LoadedArtifact | undefined): Plan {
  return withArtifact({ policy, tau, assignment: new Map() }, loaded)
}

/** As read from a file: the k-th decode worker has cluster k. */
export function withArtifact(plan: Plan, loaded: LoadedArtifact | undefined): Plan {
  if (loaded === undefined) return plan
  return { ...plan, loaded, assignment: identityAssignment(loaded.artifact.about.workers) }
}

export type TableSettings = Pick<TableOptions, 'minCovered' | 'cost' | 'unseen' | 'shadow'>

export function tableFromPlan(
  { policy, tau, loaded, assignment, shape }: Plan,
  workers: readonly AssignableWorker[],
  settings: TableSettings,
): TableResult {
  return createRoutingTable({
    policy,
    tau,
    workers: tableSize(workers),
    ...settings,
    artifact: loaded?.artifact,
    assignment: loaded && assignment,
    shape,
  })
}

/** Policies keep their state by worker index: this many entries are needed. */
export function tableSize(workers: readonly AssignableWorker[]): number {
  return workers.reduce((size, { index }) => Math.max(size, index + 1), 1)
}

/** Why the artifact's clusters do not match the workers. Undefined for policies that do not use clusters. */
export function misfitOf(
  { policy, loaded, assignment }: Plan,
  workers: readonly AssignableWorker[],
): string | undefined {
  return loaded === undefined || !descriptorOf(policy).needs.includes('clusters')
    ? undefined
    : misfit(workers, loaded.artifact.about.workers, assignment)
}

/**
 * Refits the plan's clusters (default: one per decode worker). Rejects with a Refusal that states the reason.
 */
export async function refitPlan(
  plan: Plan,
  workers: readonly AssignableWorker[],
  offThread: OffThread,
  clusters = workers.length,
): Promise<Plan & { readonly loaded: LoadedArtifact }> {
  const { loaded } = plan
  if (loaded === undefined) throw refused('There is no artifact.')
  if (clusters === 0) throw refused('There is no decode worker.')
  const assigned = assignClusters(workers, clusters)
  if (assigned.kind === 'impossible') throw refused(`${assigned.why}.`)
  const { assignment } = assigned
  const { artifact, file } = loaded
  const width = dimensionsOf(artifact.primary.model)
  const targets = targetCentroids(
    workers,
    { centroids: artifact.primary.centroids, assignment: plan.assignment },
    assignment,
    clusters,
    width,
  )
  const result = await offThread.run('refit', { file, artifact: forRefit(artifact, targets), clusters }, [
    targets.buffer,
  ])
  return { ...plan, loaded: { ...loaded, artifact: withRefit(artifact, result) }, assignment }
}

const refused = (words: string) => new Refusal('ELDR_REFIT_REFUSED', { words })
