import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'

/** Default id of a replica, unique among replicas. */
export function randomReplicaId(): string {
  return `${hostname().slice(0, 48)}-${randomBytes(4).toString('hex')}`
}
