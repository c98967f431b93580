/** From a worker as it is written to the workers that it stands for: a server with several engines is one for each. */
import type { Role } from '../../cluster/worker.ts'
import { addressOf, workerUrlOf } from './origin.ts'
import type { WorkerSetting } from './settings.ts'
import { rankedName } from './worker-id.ts'

export const MAX_CLUSTER = 65_534

export interface WorkerForm {
  readonly url: string
  readonly id?: string | undefined
  readonly dpRank?: number | undefined
  readonly ranks?: number | undefined
  readonly cluster?: number | undefined
}

/** Engines of a server that says nothing of it, as the settings have them. */
export interface RankDefaults {
  readonly ranks?: number | undefined
  readonly prefillRanks?: number | undefined
  readonly decodeRanks?: number | undefined
}

export function defaultRanks({ ranks, prefillRanks, decodeRanks }: RankDefaults, role: Role): number {
  return (role === 'prefill' ? prefillRanks : decodeRanks) ?? ranks ?? 1
}

/** `ranks`: where it says nothing of them. A server of one engine is asked without a rank, like any other. */
export function workersOf(worker: string | WorkerForm, ranks: number): WorkerSetting[] {
  const form: WorkerForm = typeof worker === 'string' ? { url: worker } : worker
  const { url, dpRank = form.dpRank } = workerUrlOf(form.url)
  const { id, cluster } = form
  const clusterAt = (rank: number) => cluster !== undefined && { cluster: cluster + rank }
  if (dpRank !== undefined)
    return [{ url, id: id ?? rankedName(addressOf(url), dpRank), dpRank, ...clusterAt(0) }]
  const name = id ?? addressOf(url)
  const count = form.ranks ?? ranks
  if (count === 1) return [{ url, id: name, ...(ranks > 1 && { ranks: 1 as const }), ...clusterAt(0) }]
  return ranked(name, count).map(one => ({ url, ...one, ...clusterAt(one.dpRank) }))
}

/** Names of all ranks of a server. */
export function ranked(name: string, count: number): { readonly id: string; readonly dpRank: number }[] {
  return Array.from({ length: count }, (_, dpRank) => ({ id: rankedName(name, dpRank), dpRank }))
}
