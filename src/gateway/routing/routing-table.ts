/**
 * How hand-offs become decisions: an artifact, the policy made of it, and what is read of a hand-off. A table never changes; a new
 * artifact, policy or number of workers makes a new one, and requests that were decided by the old one stay where they are.
 */
import type { Artifact } from '../../fit/artifact.ts'
import { missingFor } from '../../policy/create-policy.ts'
import type { DecodePolicy, RoutableRequest } from '../../policy/decode-policy.ts'
import { jsq } from '../../policy/jsq.ts'
import { createSigner } from '../../signature/signer.ts'
import { TRANSFORM } from '../../signature/transform.ts'
import type { HandoffCounts, Reject } from '../../wire/counts.ts'
import { claimedShape, type HandoffExperts, readExperts, type Shape } from './read-experts.ts'
import { seenThroughFallback, tablePolicy, type TablePolicyOptions, viewsOf } from './table-policy.ts'

export interface TableOptions extends TablePolicyOptions {
  /** A hand-off whose counts cover less of the prompt is routed by load. */
  readonly minCovered: number
}

/** What a hand-off says of a request, and why it does not say more. */
export interface Reading {
  readonly routable: RoutableRequest
  readonly reject?: Reject | 'recent_missing'
  /** Share of the prompt whose experts are known. */
  readonly covered?: number
}

export interface RoutingTable {
  readonly policy: DecodePolicy
  readonly artifact: Artifact | undefined
  /** Undefined as long as nothing is known of the model. */
  readonly shape: Shape | undefined
  /** Without a hand-off there is nothing to read, and nothing amiss. */
  read(id: string, handoff: HandoffExperts | undefined): Reading
}

/** As long as no hand-off has said more: whatever comes is of another shape, and the reason for which it is rejected is its own. */
const NO_MODEL: Shape = { layers: 0, experts: 0, topK: 0 }

/** A sentence instead of a table says what is missing. */
export function createRoutingTable(options: TableOptions): RoutingTable | string {
  const { artifact, minCovered } = options
  const shape = artifact?.about ?? options.shape
  const missing = missingFor(options.policy, options)
  // The first hand-off tells the model's shape; until then a policy that only needs counts routes by load.
  if (missing !== undefined && missing.need !== 'counts') return missing.words
  const policy = missing === undefined ? tablePolicy(options) : jsq()
  const signers =
    artifact === undefined ? [] : viewsOf(artifact).map(view => createSigner(view.primary.model))
  const readsRecent =
    artifact !== undefined && TRANSFORM[artifact.primary.model.transform].source === 'recent'
  const recentHalfLife = readsRecent ? artifact.primary.recentHalfLife : undefined
  const expected = shape && {
    ...pick(shape),
    minCovered,
    ...(recentHalfLife !== undefined && { recentHalfLife }),
  }

  function signed(id: string, { counts, recent }: HandoffCounts): Reading {
    const values = readsRecent && recent !== undefined ? recent : counts
    const view = readsRecent && recent === undefined && signers.length > 1 ? 1 : 0
    const signature = signers[view]?.sign(values)
    const routable: RoutableRequest = { id, counts: values, ...(signature && { signature }) }
    if (view === 1) seenThroughFallback(routable)
    return { routable, ...(readsRecent && recent === undefined && { reject: 'recent_missing' as const }) }
  }
  return {
    policy,
    artifact,
    shape: shape && pick(shape),
    read(id, handoff) {
      if (handoff === undefined) return { routable: { id } }
      const claimed = expected === undefined ? claimedShape(handoff.counts) : undefined
      const read = readExperts(handoff, expected ?? { ...(claimed ?? NO_MODEL), minCovered })
      if ('reject' in read) return { routable: { id }, reject: read.reject }
      return { ...signed(id, read), covered: read.covered / read.tokens }
    },
  }
}

function pick({ layers, experts, topK }: Shape): Shape {
  return { layers, experts, topK }
}
