/** Workers listed in the configuration. */
import type { WorkerSpec } from '../../cluster/worker.ts'
import type { Settings } from './settings.ts'

/**
 * By default the cluster of a decode worker is its position in the list, and may change when workers are
 * removed. If the configuration sets clusters in another order, they are fixed.
 */
export function configuredWorkers({ workers: { prefill, decode } }: Settings): WorkerSpec[] {
  const fixed = decode.some(({ cluster }, place) => cluster !== place)
  return [
    ...prefill.map(({ id, url, dpRank }) => ({
      id,
      url,
      dpRank,
      role: 'prefill' as const,
      source: 'config' as const,
    })),
    ...decode.map(({ id, url, dpRank, cluster }) => ({
      id,
      url,
      dpRank,
      role: 'decode' as const,
      source: 'config' as const,
      cluster: fixed ? cluster : undefined,
    })),
  ]
}
