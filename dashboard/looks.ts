/** The last snapshots of each worker's experts: single steps flicker, a mean over a few seconds does not. */
import type { ExpertsView } from '../src/gateway/observe/insight/wire.ts'
import { meanOf, unpackBits, unpackBytes } from './cells.ts'

/** About 15 seconds. */
const KEPT = 20

const looks = new Map<string, Float32Array<ArrayBuffer>[]>()
let shape = ''

export function keepLooks({ layers, experts, workers }: ExpertsView): void {
  const cells = layers * experts
  if (shape !== `${layers} ${experts}`) looks.clear()
  shape = `${layers} ${experts}`
  for (const id of looks.keys()) if (!workers.some(worker => worker.id === id)) looks.delete(id)
  for (const { id, union, batch } of workers) {
    // An idle worker keeps reporting its last step.
    if (union === undefined || batch === 0) looks.delete(id)
    else looks.set(id, [...(looks.get(id) ?? []), unpackBits(union, cells)].slice(-KEPT))
  }
}

export type Mode = 'now' | 'recent' | 'difference' | 'expected'

/** Shares per cell for each worker with data, by id. */
export function sharesOf(
  { layers, experts, workers }: ExpertsView,
  mode: Mode,
): ReadonlyMap<string, Float32Array<ArrayBuffer>> {
  const cells = layers * experts
  const found = new Map<string, Float32Array<ArrayBuffer>>()
  for (const { id, expected, union } of workers) {
    const seen = looks.get(id)
    // If an engine reports no experts, use the estimate; the caller labels it.
    if (mode === 'expected' || union === undefined) {
      if (expected !== undefined) found.set(id, unpackBytes(expected, cells))
    } else if (seen !== undefined) found.set(id, mode === 'now' ? seen.at(-1)! : meanOf(seen, cells))
  }
  return found
}
