/** Names of workers: they stand in paths, in labels of metrics and in messages between gateways. */
import { createHash } from 'node:crypto'

/** With escapes that every dialect of regular expressions reads alike: it is published in the OpenAPI document. */
export const WORKER_ID = new RegExp('^[A-Za-z0-9_.:@\\[\\]-]{1,128}$')
export const WORKER_ID_WORDS = '1 to 128 letters, digits or any of . : @ _ [ ] -'

/** A name that can be one: what cannot stand in it is replaced, and a hash keeps apart what would become the same. */
export function workerName(name: string): string {
  if (WORKER_ID.test(name)) return name
  const hash = createHash('sha256').update(name).digest('hex').slice(0, 8)
  return `${name.replaceAll(/[^\w.:@[\]-]/g, '_').slice(0, 119)}-${hash}`
}

/** Of one of several engines behind a URL. */
export const rankedName = (name: string, dpRank: number): string => workerName(`${name}@${dpRank}`)
