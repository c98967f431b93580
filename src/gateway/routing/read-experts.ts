/**
 * Reads the experts of a prompt from its hand-off: the plugin's counts, or else the engine's list of routed
 * experts.
 */
import { type CountsOrReject, type ExpectedCounts, readHandoffCounts } from '../../wire/counts.ts'
import { readRoutedExperts } from '../../wire/routed-experts.ts'
import type { Handoff } from '../engines/engine.ts'
import { countsIn } from '../engines/handoff-counts.ts'

export type HandoffExperts = Pick<Handoff, 'counts' | 'routedExperts' | 'promptTokens'>

export interface Shape {
  readonly layers: number
  readonly experts: number
  readonly topK: number
}

/**
 * Never throws, whatever a worker sends. Invalid counts do not fall back to routed experts: that would hide
 * the fault.
 */
export function readExperts(
  { counts, routedExperts, promptTokens }: HandoffExperts,
  expected: ExpectedCounts,
): CountsOrReject {
  const read = readHandoffCounts(counts && countsIn(counts), expected)
  const missing = 'reject' in read && read.reject === 'missing'
  return missing && routedExperts !== undefined
    ? readRoutedExperts(routedExperts, { ...expected, promptTokens: promptTokens ?? 0 })
    : read
}

/**
 * The shape of the model, from counts that are valid for the shape they claim. Routed experts do not tell the
 * number of experts.
 */
export function shapeIn(bytes: Buffer | undefined): Shape | undefined {
  if (bytes === undefined) return undefined
  const counts = countsIn(bytes)
  const shape = shapeOf(counts)
  return shape === undefined || 'reject' in readHandoffCounts(counts, { ...shape, minCovered: 0 })
    ? undefined
    : shape
}

/** The shape that counts claim, if it is a possible one. */
export function claimedShape(counts: Buffer | undefined): Shape | undefined {
  return counts && shapeOf(countsIn(counts))
}

function shapeOf(counts: unknown): Shape | undefined {
  const { layers, experts, top_k: topK } = (counts ?? {}) as Readonly<Record<string, unknown>>
  const isUpTo = (value: unknown, max: number): value is number =>
    Number.isInteger(value) && (value as number) > 0 && (value as number) <= max
  return isUpTo(layers, 1_024) && isUpTo(experts, 4_096) && isUpTo(topK, experts)
    ? { layers, experts, topK }
    : undefined
}
