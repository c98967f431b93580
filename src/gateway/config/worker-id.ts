/** Worker ids. They are used in paths, metric labels and messages between gateways. */
import { createHash } from 'node:crypto'

/**
 * Uses only escapes that all regular expression dialects support, since the OpenAPI document publishes it.
 */
export const WORKER_ID = new RegExp('^[A-Za-z0-9_.:@\\[\\]-]{1,128}$')
export const WORKER_ID_EXPECTED = '1 to 128 letters, digits or any of . : @ _ [ ] -'

/**
 * Turns a name into a valid id: replaces invalid characters and appends a hash to keep different names apart.
 */
export function workerName(name: string): string {
  if (WORKER_ID.test(name)) return name
  const hash = createHash('sha256').update(name).digest('hex').slice(0, 8)
  return `${name.replaceAll(/[^\w.:@[\]-]/g, '_').slice(0, 119)}-${hash}`
}

/** Id of one data-parallel rank of a server. */
export const rankedName = (name: string, dpRank: number): string => workerName(`${name}@${dpRank}`)
