/**
 * Creates replicas from the settings. For a single gateway, the rest of this folder and the store client are
 * not loaded.
 */
import type { ReplicaSettings } from '../../config/settings.ts'
import { readPem } from '../../http/tls-files.ts'
import type { ReplicaParts, Replicas as Shared } from './replicas.ts'

export async function readyReplicas(
  settings: ReplicaSettings,
  parts: ReplicaParts,
): Promise<Shared | undefined> {
  const { url } = settings
  if (url === undefined) return undefined
  // Only checked here: it is read again at each connection, since it may be renewed.
  if (settings.caFile !== undefined) readPem(settings.caFile)
  // The store client takes a while to load, so load it before the first requests.
  const { Replicas } = await import('./replicas.ts')
  return new Replicas({ ...settings, url }, parts)
}
