import { POLICIES, type PolicyName } from '../policy/decode-policy.ts'

/**
 * Where `union` takes its prediction from. A gateway predicts; the others are for study: `true` knows what each request will do (no router
 * can: it is the limit), `own` goes by the prompt alone, `all` seeks neighbours among all calibration requests and not in near clusters only.
 */
export const FORESIGHTS = ['true', 'own', 'all'] as const
export type Foresight = (typeof FORESIGHTS)[number]

/** What is compared: a policy, with a setting of its own where one is named: eldr@0.2 has another band, union@true another prediction. */
export interface Variant {
  readonly policy: PolicyName
  readonly tau?: number
  readonly foresight?: Foresight
}

export function parseVariant(text: string): Variant | undefined {
  const [, name, setting] = /^([a-z_]+)(?:@([a-z0-9.]+))?$/.exec(text) ?? []
  const policy = POLICIES.find(known => known === name)
  if (policy === undefined || setting === undefined) return policy && { policy }
  if (policy === 'eldr' && /^(0(\.\d+)?|1(\.0+)?)$/.test(setting)) return { policy, tau: Number(setting) }
  const foresight = FORESIGHTS.find(known => known === setting)
  return policy === 'union' && foresight ? { policy, foresight } : undefined
}
