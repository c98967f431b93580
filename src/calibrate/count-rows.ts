/** Rows of expert ids, a token each, to what a trace keeps of a request. */
import { toU16 } from '../wire/counts.ts'
import type { Captured } from './captured.ts'
import type { SavedAnswer } from './saved-answer.ts'

export interface RowSettings {
  readonly experts: number
  /** Rising; layers of the rows that are kept, the others being dense. */
  readonly layers: readonly number[]
  /** Leading prompt tokens that have no row. */
  readonly promptStart: number
  /** Tokens; 0 for no recent counts. */
  readonly halfLife: number
  readonly mostSteps: number
}

const UNITS = 256

/**
 * Layers that route: those in which some token has different experts. Nobody writes rows of dense layers, which stay zeros or −1. With one
 * expert a token, some other than the first.
 */
export function markRouting({ ids, layers, topK }: SavedAnswer, routes: Uint8Array): void {
  for (let at = 0, cell = 0; at < ids.length; at += topK, cell++) {
    const layer = cell % layers
    if (routes[layer] === 1) continue
    if (topK === 1 ? ids[at]! > 0 : ids[at]! >= 0 && ids[at] !== ids[at + 1]) routes[layer] = 1
  }
}

/** The largest id of the layers that are kept; −1 for none. */
export function largestId({ ids, layers: rowLayers, topK }: SavedAnswer, kept: readonly number[]): number {
  let most = -1
  for (let row = 0; row < ids.length; row += rowLayers * topK)
    for (const layer of kept)
      for (let i = row + layer * topK; i < row + (layer + 1) * topK; i++) most = Math.max(most, ids[i]!)
  return most
}

/** Ids are below `experts`. A token of which any kept layer has no experts, or one twice, is not covered; decode steps end at the first. */
export function countRows(
  answer: SavedAnswer,
  { experts, layers, promptStart, halfLife, mostSteps }: RowSettings,
): Captured {
  const { ids, layers: rowLayers, topK, promptTokens } = answer
  const width = rowLayers * topK
  const rows = ids.length / width
  const counts = new Uint32Array(layers.length * experts)
  const recent = new Float64Array(halfLife > 0 ? counts.length : 0)
  const isCovered = coverage(ids, width, layers, topK, experts)
  const promptRows = Math.min(rows, promptTokens - promptStart)
  let covered = 0
  for (let row = 0; row < promptRows; row++) {
    if (!isCovered(row)) continue
    covered++
    const weight = halfLife > 0 ? 2 ** ((row + promptStart + 1 - promptTokens) / halfLife) : 0
    layers.forEach((layer, l) => {
      for (let i = row * width + layer * topK, end = i + topK; i < end; i++) {
        counts[l * experts + ids[i]!]!++
        if (halfLife > 0) recent[l * experts + ids[i]!]! += weight
      }
    })
  }
  let steps = 0
  const most = Math.min(mostSteps, rows - promptRows)
  while (steps < most && isCovered(promptRows + steps)) steps++
  const generated = new Uint16Array(steps * layers.length * topK)
  for (let step = 0, to = 0; step < steps; step++)
    for (const layer of layers)
      for (let i = (promptRows + step) * width + layer * topK, end = i + topK; i < end; i++)
        generated[to++] = ids[i]!
  return {
    layers: layers.length,
    experts,
    topK,
    halfLife,
    tokens: promptTokens,
    covered,
    counts: toU16(counts).values,
    // As a hand-off has them: halves go up.
    ...(halfLife > 0 && { recent: Uint16Array.from(recent, value => Math.floor(value * UNITS + 0.5)) }),
    steps,
    ids: generated,
  }
}

function coverage(
  ids: ArrayLike<number>,
  width: number,
  layers: readonly number[],
  topK: number,
  experts: number,
): (row: number) => boolean {
  const lastSeen = new Uint32Array(experts)
  let now = 0
  return row => {
    for (const layer of layers) {
      now++
      for (let i = row * width + layer * topK, end = i + topK; i < end; i++) {
        const id = ids[i]!
        if (id < 0 || lastSeen[id] === now) return false
        lastSeen[id] = now
      }
    }
    return true
  }
}
