/** The workers that the configuration names. */
import type { WorkerSpec } from '../../cluster/worker.ts'
import type { Settings } from './settings.ts'

/**
 * A decode worker has its place in the list for its cluster, and may get another one's number when workers have gone. Where the
 * configuration gives clusters in another order it means them, and they are kept.
 */
export function configuredWorkers({ workers: { prefill, decode } }: Settings): WorkerSpec[] {
  const fixed = decode.some(({ cluster }, place) => cluster !== place)
  return [
    ...prefill.map(({ id, url, dpRank }) => ({
      id,
      url,
      role: 'prefill' as const,
      source: 'config' as const,
      ...(dpRank !== undefined && { dpRank }),
    })),
    ...decode.map(({ id, url, dpRank, cluster }) => ({
      id,
      url,
      ...(dpRank !== undefined && { dpRank }),
      role: 'decode' as const,
      source: 'config' as const,
      ...(fixed && cluster !== undefined && { cluster }),
    })),
  ]
}
