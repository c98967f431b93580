/**
 * Expands a worker of the configuration: a server with several data-parallel ranks becomes one worker per
 * rank.
 */
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

/** Number of ranks of servers that do not set it. */
export interface RankDefaults {
  readonly ranks?: number | undefined
  readonly prefillRanks?: number | undefined
  readonly decodeRanks?: number | undefined
}

export function defaultRanks({ ranks, prefillRanks, decodeRanks }: RankDefaults, role: Role): number {
  return (role === 'prefill' ? prefillRanks : decodeRanks) ?? ranks ?? 1
}

/**
 * `ranks`: default for a server that does not set it. A server with one rank gets requests without a rank.
 */
export function workersOf(worker: string | WorkerForm, ranks: number): WorkerSetting[] {
  const form: WorkerForm = typeof worker === 'string' ? { url: worker } : worker
  const { url, dpRank = form.dpRank } = workerUrlOf(form.url)
  const { id, cluster } = form
  const clusterAt = (rank: number) => (cluster === undefined ? undefined : cluster + rank)
  if (dpRank !== undefined) return [{ url, id: id ?? rankedName(addressOf(url), dpRank), dpRank, cluster }]
  const name = id ?? addressOf(url)
  const count = form.ranks ?? ranks
  if (count === 1) return [{ url, id: name, ranks: ranks > 1 ? 1 : undefined, cluster }]
  return ranked(name, count).map(one => ({ url, ...one, cluster: clusterAt(one.dpRank) }))
}

/** Ids of all ranks of a server. */
export function ranked(name: string, count: number): { readonly id: string; readonly dpRank: number }[] {
  return Array.from({ length: count }, (_, dpRank) => ({ id: rankedName(name, dpRank), dpRank }))
}
