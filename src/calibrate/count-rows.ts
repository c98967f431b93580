/** Turns rows of expert ids, one per token, into the counts and ids that a trace keeps. */
import { toU16 } from '../wire/counts.ts'
import type { Captured } from './captured.ts'
import type { SavedResponse } from './saved-response.ts'

export interface RowSettings {
  readonly experts: number
  /** Layers of the rows to keep, in increasing order; the others are dense. */
  readonly layers: readonly number[]
  /** Number of leading prompt tokens without a row. */
  readonly promptStart: number
  /** In tokens; 0: no recent counts. */
  readonly halfLife: number
  readonly maxSteps: number
}

const UNITS = 256

/**
 * Marks layers that route: those in which some token has different experts (with top 1: an expert other than
 * 0). Engines do not write the rows of dense layers, which stay 0 or −1.
 */
export function markRouting({ ids, layers, topK }: SavedResponse, routes: Uint8Array): void {
  for (let at = 0, cell = 0; at < ids.length; at += topK, cell++) {
    const layer = cell % layers
    if (routes[layer] === 1) continue
    if (topK === 1 ? ids[at]! > 0 : ids[at]! >= 0 && ids[at] !== ids[at + 1]) routes[layer] = 1
  }
}

/** The largest id in the kept layers; −1 for none. */
export function largestId({ ids, layers: rowLayers, topK }: SavedResponse, kept: readonly number[]): number {
  let largest = -1
  for (let row = 0; row < ids.length; row += rowLayers * topK)
    for (const layer of kept)
      for (let i = row + layer * topK; i < row + (layer + 1) * topK; i++) largest = Math.max(largest, ids[i]!)
  return largest
}

/**
 * Ids must be below `experts`. A token is not covered if a kept layer has no experts for it or has one twice;
 * decode steps end at the first such token.
 */
export function countRows(
  response: SavedResponse,
  { experts, layers, promptStart, halfLife, maxSteps }: RowSettings,
): Captured {
  const { ids, layers: rowLayers, topK, promptTokens } = response
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
  const stepLimit = Math.min(maxSteps, rows - promptRows)
  while (steps < stepLimit && isCovered(promptRows + steps)) steps++
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
    // Rounded half up, as in a hand-off.
    recent: halfLife > 0 ? Uint16Array.from(recent, value => Math.floor(value * UNITS + 0.5)) : undefined,
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
