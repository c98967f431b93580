/** Replicas from the settings. Where a gateway is alone nothing of this folder is loaded, nor the client of the store. */
import type { ReplicaSettings } from '../../config/settings.ts'
import { readPem } from '../../http/tls-files.ts'
import type { ReplicaParts, Replicas as Shared } from './replicas.ts'

export async function readyReplicas(
  settings: ReplicaSettings,
  parts: ReplicaParts,
): Promise<Shared | undefined> {
  const { url } = settings
  if (url === undefined) return undefined
  if (settings.caFile !== undefined) readPem(settings.caFile) // again at each connection, since it may be renewed
  // The client of the store takes a while to load: better now than when the first requests are there.
  const { Replicas } = await import('./replicas.ts')
  return new Replicas({ ...settings, url }, parts)
}
