import { type PolicyDescriptor, policyNamed } from '../policy/decode-policy.ts'

/**
 * Source of a policy's prediction, for studies. `true` knows what each request will do, which no router can:
 * it is the upper limit. `own` uses the prompt alone. `all` searches all calibration requests for neighbours,
 * not only those of near clusters.
 */
export const FORESIGHTS = ['true', 'own', 'all'] as const
export type Foresight = (typeof FORESIGHTS)[number]

/**
 * Cost of a step that a policy goes by, for studies (default: that of the simulated profile). `learnt`: the
 * built-in cost at first, then learnt from the streams, as in a gateway without a profile; `default`: the
 * built-in cost; `exact`: of each worker, also of a slow one.
 */
export const COSTS = ['learnt', 'default', 'exact'] as const
export type CostKind = (typeof COSTS)[number]

/**
 * A policy, optionally with a setting: eldr@0.2 has another τ, union@true another prediction, union@learnt
 * another cost of a step.
 */
export interface Variant {
  readonly policy: PolicyDescriptor
  readonly tau?: number
  readonly foresight?: Foresight
  readonly cost?: CostKind
}

export function parseVariant(text: string): Variant | undefined {
  const [, name, setting] = /^([a-z_]+)(?:@([a-z0-9.]+))?$/.exec(text) ?? []
  const policy = policyNamed(name ?? '')
  if (policy === undefined || setting === undefined) return policy && { policy }
  if (policy.setting === 'tau' && /^(0(\.\d+)?|1(\.0+)?)$/.test(setting))
    return { policy, tau: Number(setting) }
  if (policy.setting !== 'prediction') return undefined
  const foresight = FORESIGHTS.find(known => known === setting)
  const cost = COSTS.find(known => known === setting)
  return foresight ? { policy, foresight } : cost && { policy, cost }
}
