/**
 * How hand-offs become decisions: an artifact, the policy built from it, and what is read from a hand-off.
 * Tables are immutable: a new artifact, policy or number of workers makes a new one, and requests in flight
 * stay where they are.
 */
import type { Artifact } from '../../fit/artifact.ts'
import { missingFor } from '../../policy/create-policy.ts'
import type { DecodePolicy, RoutableRequest } from '../../policy/decode-policy.ts'
import { jsq } from '../../policy/jsq.ts'
import { createSigner } from '../../signature/signer.ts'
import { TRANSFORM } from '../../signature/transform.ts'
import type { HandoffCounts, Reject } from '../../wire/counts.ts'
import { claimedShape, type HandoffExperts, readExperts, type Shape } from './read-experts.ts'
import { type ShadowOptions, TableShadow } from './shadow/table-shadow.ts'
import { predictorFor, tablePolicy, type TablePolicyOptions, useFallback, viewsOf } from './table-policy.ts'

export interface TableOptions extends TablePolicyOptions {
  /** A hand-off whose counts cover less of the prompt is routed by load. */
  readonly minCovered: number
  /** Policies that decide beside this one. Undefined without any. */
  readonly shadow?: ShadowOptions
}

/** What was read from a hand-off, and why counts were rejected. */
export interface Reading {
  readonly routable: RoutableRequest
  readonly reject?: Reject | 'recent_missing'
  /** Share of the prompt covered by counts. */
  readonly covered?: number
}

export interface RoutingTable {
  readonly policy: DecodePolicy
  readonly artifact: Artifact | undefined
  /** Undefined until the shape of the model is known. */
  readonly shape: Shape | undefined
  /** Undefined without shadow policies. */
  readonly shadow?: TableShadow
  /** Without a hand-off there is nothing to read, and nothing is rejected. */
  read(id: string, handoff: HandoffExperts | undefined): Reading
}

export type TableResult =
  | { readonly kind: 'ok'; readonly table: RoutingTable }
  /** `missing`: what the policy needs, a phrase for people. */
  | { readonly kind: 'missing'; readonly missing: string }

/**
 * Until a valid hand-off tells the shape: counts do not match this one, and are rejected with their own
 * reason.
 */
const NO_MODEL: Shape = { layers: 0, experts: 0, topK: 0 }

export function createRoutingTable(given: TableOptions): TableResult {
  const { artifact, minCovered } = given
  const shape = artifact?.about ?? given.shape
  // One predictor for the policy and its shadows: each request is predicted once.
  const options =
    given.shadow === undefined || shape === undefined ? given : { ...given, predictor: predictorFor(given) }
  const missing = missingFor(options.policy, options)
  // The first hand-off tells the shape of the model; until then a policy that needs only counts routes by
  // load.
  if (missing !== undefined && missing.need !== 'counts') return { kind: 'missing', missing: missing.words }
  const policy = missing === undefined ? tablePolicy(options) : jsq()
  const signers =
    artifact === undefined ? [] : viewsOf(artifact).map(view => createSigner(view.primary.model))
  const readsRecent =
    artifact !== undefined && TRANSFORM[artifact.primary.model.transform].source === 'recent'
  const recentHalfLife = readsRecent ? artifact.primary.recentHalfLife : undefined
  const expected = shape && { ...pick(shape), minCovered, recentHalfLife }

  function signed(id: string, { counts, recent }: HandoffCounts): Reading {
    const values = readsRecent && recent !== undefined ? recent : counts
    const view = readsRecent && recent === undefined && signers.length > 1 ? 1 : 0
    const signature = signers[view]?.sign(values)
    const routable: RoutableRequest = { id, counts: values, signature }
    if (view === 1) useFallback(routable)
    return { routable, reject: readsRecent && recent === undefined ? 'recent_missing' : undefined }
  }
  const table: RoutingTable = {
    policy,
    artifact,
    shape: shape && pick(shape),
    shadow: options.shadow && new TableShadow(options.shadow, options, shape),
    read(id, handoff) {
      if (handoff === undefined) return { routable: { id } }
      const claimed = expected === undefined ? claimedShape(handoff.counts) : undefined
      const read = readExperts(handoff, expected ?? { ...(claimed ?? NO_MODEL), minCovered })
      if ('reject' in read) return { routable: { id }, reject: read.reject }
      return { ...signed(id, read), covered: read.covered / read.tokens }
    },
  }
  return { kind: 'ok', table }
}

function pick({ layers, experts, topK }: Shape): Shape {
  return { layers, experts, topK }
}
