/** What a hand-off says of the experts of its prompt: the plugin's counts, or where there are none the engine's own list of routed experts. */
import { type CountsOrReject, type ExpectedCounts, readHandoffCounts } from '../../wire/counts.ts'
import { readRoutedExperts } from '../../wire/routed-experts.ts'
import type { Handoff } from '../engines/engine.ts'

export type HandoffExperts = Pick<Handoff, 'counts' | 'routedExperts' | 'promptTokens'>

export interface Shape {
  readonly layers: number
  readonly experts: number
  readonly topK: number
}

/** Never throws, whatever a worker sends. Counts that are there and wrong are not made good by the other source: that would hide the fault. */
export function readExperts(
  { counts, routedExperts, promptTokens }: HandoffExperts,
  expected: ExpectedCounts,
): CountsOrReject {
  const read = readHandoffCounts(counts, expected)
  const nothing = 'reject' in read && read.reject === 'missing'
  return nothing && routedExperts !== undefined
    ? readRoutedExperts(routedExperts, { ...expected, promptTokens: promptTokens ?? 0 })
    : read
}

/** The model's shape, from a hand-off whose counts can be read as it says. Routed experts do not tell how many experts there are. */
export function shapeIn(counts: unknown): Shape | undefined {
  const shape = claimedShape(counts)
  return shape === undefined || 'reject' in readHandoffCounts(counts, { ...shape, minCovered: 0 })
    ? undefined
    : shape
}

/** What a hand-off says of its model, where it says something that a model can be. */
export function claimedShape(counts: unknown): Shape | undefined {
  const { layers, experts, top_k: topK } = (counts ?? {}) as Readonly<Record<string, unknown>>
  const isUpTo = (value: unknown, most: number): value is number =>
    Number.isInteger(value) && (value as number) > 0 && (value as number) <= most
  return isUpTo(layers, 1_024) && isUpTo(experts, 4_096) && isUpTo(topK, experts)
    ? { layers, experts, topK }
    : undefined
}
