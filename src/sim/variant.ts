import { type PolicyDescriptor, policyNamed } from '../policy/decode-policy.ts'

/**
 * Source of a policy's prediction, for studies. `true` knows what each request will do, which no router can:
 * it is the upper limit. `own` uses the prompt alone. `all` searches all calibration requests for neighbours,
 * not only those of near clusters.
 */
export const FORESIGHTS = ['true', 'own', 'all'] as const
export type Foresight = (typeof FORESIGHTS)[number]

/** A policy, optionally with a setting: eldr@0.2 has another τ, union@true another prediction. */
export interface Variant {
  readonly policy: PolicyDescriptor
  readonly tau?: number
  readonly foresight?: Foresight
}

export function parseVariant(text: string): Variant | undefined {
  const [, name, setting] = /^([a-z_]+)(?:@([a-z0-9.]+))?$/.exec(text) ?? []
  const policy = policyNamed(name ?? '')
  if (policy === undefined || setting === undefined) return policy && { policy }
  if (policy.setting === 'tau' && /^(0(\.\d+)?|1(\.0+)?)$/.test(setting))
    return { policy, tau: Number(setting) }
  const foresight = FORESIGHTS.find(known => known === setting)
  return policy.setting === 'prediction' && foresight ? { policy, foresight } : undefined
}
