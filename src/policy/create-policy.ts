import { isServable } from '../signature/transform.ts'
import { anticipating } from './anticipate.ts'
import {
  type DecodePolicy,
  descriptorOf,
  type Need,
  type PolicyDescriptor,
  type PolicyName,
  type PolicyOptions,
} from './decode-policy.ts'
import { domainShares } from './domain.ts'
import { preferHolder } from './prefer-holder.ts'

export { predictorOf } from './predictor.ts'

/** Undefined if something it needs is missing; `missingFor` says what. */
export function createDecodePolicy(
  policy: PolicyName | PolicyDescriptor,
  options: PolicyOptions,
): DecodePolicy | undefined {
  if (missingFor(policy, options) !== undefined) return undefined
  const { create, pricesHolder } = descriptorOf(policy)
  const created = pricesHolder ? create(options) : preferHolder(create(options), options.cost)
  return options.unseen === undefined ? created : anticipating(created, options.unseen)
}

/** The first need of a policy that is not met, and a phrase for people about what to provide. */
export interface Missing {
  readonly need: Need
  readonly words: string
}

export function missingFor(
  policy: PolicyName | PolicyDescriptor,
  options: PolicyOptions,
): Missing | undefined {
  const { needs } = descriptorOf(policy)
  for (const [need, wordsFor] of Object.entries(MISSING) as [Need, (typeof MISSING)[Need]][]) {
    const words = needs.includes(need) ? wordsFor(options) : undefined
    if (words !== undefined) return { need, words }
  }
  return undefined
}

/** Counts come last: a gateway can wait for the shape of the model, but for nothing else. */
const MISSING: Readonly<Record<Need, (options: PolicyOptions) => string | undefined>> = {
  clusters: ({ artifact }) => (artifact === undefined ? 'an artifact with centroids' : undefined),
  signature({ artifact }) {
    if (artifact === undefined) return 'an artifact with a signature'
    return isServable(artifact.primary.model.transform)
      ? undefined
      : 'an artifact that reads counts: this one was fitted on gate scores'
  },
  labels: ({ artifact }) =>
    domainShares(artifact).length === 0 ? 'an artifact of a trace with domains' : undefined,
  counts: ({ artifact, shape }) =>
    artifact === undefined && shape === undefined ? 'an artifact, or the shape of the model' : undefined,
}
