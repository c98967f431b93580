/**
 * Whether routing by experts pays under a plan's load, and each reason why it may not, with the number that
 * decides.
 */
import type { CostProfile } from '../cost/profile.ts'
import type { Traffic } from './plan-bounds.ts'
import { isPrefillBound, type Probe } from './plan-probe.ts'

/**
 * What each check looks at, at the highest rate of the best load balancer. small_batches: requests in a step
 * under the balancer; single requests share nothing. every_expert_fires: share of the model's experts that
 * fire in its steps, if no policy reduces it. no_structure: share of its active experts that the best other
 * policy saves. weak_signature: ρ of the artifact, how well signatures tell which requests decode alike.
 * other_costs: share of a step's time that depends on the active experts, by the profile. prefill_bound: the
 * highest rate of the best other policy, if prefill is the first to fail above it.
 */
export type CheckKind =
  | 'small_batches'
  | 'every_expert_fires'
  | 'no_structure'
  | 'weak_signature'
  | 'other_costs'
  | 'prefill_bound'

export interface Check {
  readonly kind: CheckKind
  readonly value: number
  /** Threshold at which the number counts against it; null if it is not a matter of degree. */
  readonly threshold: number | null
  readonly against: boolean
}

export interface Verdict {
  /** `out_of_reach`: no policy keeps the SLO at any rate. */
  readonly answer: 'pays' | 'does_not' | 'out_of_reach'
  /**
   * The policy with the highest rate that is not a load balancer; of equal ones the one with the fewest
   * decode workers.
   */
  readonly policy: string
  /** Its highest rate against the best load balancer's, as a share; null if one of them holds none. */
  readonly gain: number | null
  readonly checks: readonly Check[]
  /**
   * Reasons against it. If few experts are saved because of the batches, that is the reason and not the
   * trace.
   */
  readonly reasons: readonly CheckKind[]
}

/** The parts of a plan that the verdict uses. */
export interface VerdictInput {
  readonly balancer: string
  readonly results: readonly {
    readonly variant: string
    readonly isBalancer: boolean
    readonly highest: {
      readonly value: number | null
      readonly limits: Probe['limits']
      readonly gain: number | null
    }
    readonly fewest?: { readonly value: number | null; readonly gpusSaved: number | null }
  }[]
  readonly sameRate: {
    readonly points: readonly {
      readonly variant: string
      readonly probe: Pick<Probe, 'activeExperts' | 'fullestRankExperts' | 'batch' | 'tpotMeanMs'>
    }[]
  }
  readonly traffic: Pick<Traffic, 'experts'>
  readonly profile: Pick<CostProfile, 'shape' | 'decode'>
  readonly rho?: number
}

/** Fewer active experts, or a higher rate, by less than this are not significant. */
const WORTH = 0.02
const NEARLY_ALL = 0.9
const WEAK_RHO = 0.1
const SMALL_SHARE = 0.2
const SMALL_BATCH = 2

export function verdictOf(input: VerdictInput): Verdict {
  const others = input.results.filter(({ isBalancer }) => !isBalancer)
  if (others.length === 0) throw new RangeError('no policy to judge')
  const best = others.reduce((a, b) => (isBetter(b, a) ? b : a))
  const base = input.results.find(({ variant }) => variant === input.balancer)!
  const checks = checksOf(input, best)
  return {
    answer: answerOf(best, base, checks),
    policy: best.variant,
    gain: best.highest.gain,
    checks,
    reasons: reasonsOf(checks),
  }
}

function reasonsOf(checks: readonly Check[]): CheckKind[] {
  const reasons = checks.filter(({ against }) => against).map(({ kind }) => kind)
  const isBatches = reasons.includes('small_batches') || reasons.includes('every_expert_fires')
  return isBatches ? reasons.filter(kind => kind !== 'no_structure') : reasons
}

type Result = VerdictInput['results'][number]

function isBetter(a: Result, b: Result): boolean {
  const [left, right] = [a.highest.value ?? 0, b.highest.value ?? 0]
  return left === right ? (a.fewest?.value ?? Infinity) < (b.fewest?.value ?? Infinity) : left > right
}

/**
 * If no experts are saved, a higher rate or a GPU less comes from chance or better balance, and not from
 * routing by experts.
 */
function answerOf(best: Result, base: Result, checks: readonly Check[]): Verdict['answer'] {
  if (best.highest.value === null) return base.highest.value === null ? 'out_of_reach' : 'does_not'
  if (checks.some(({ kind, against }) => kind === 'no_structure' && against)) return 'does_not'
  if (base.highest.value === null || (best.fewest?.gpusSaved ?? 0) > 0) return 'pays'
  return best.highest.gain! >= WORTH ? 'pays' : 'does_not'
}

function checksOf(
  { balancer, results, sameRate, traffic, profile, rho }: VerdictInput,
  best: Result,
): Check[] {
  const base = sameRate.points.find(({ variant }) => variant === balancer)!.probe
  const balancers = new Set(results.filter(({ isBalancer }) => isBalancer).map(({ variant }) => variant))
  const fewest = Math.min(
    ...sameRate.points
      .filter(({ variant }) => !balancers.has(variant))
      .map(({ probe }) => probe.activeExperts),
  )
  const saved = 1 - fewest / base.activeExperts
  const firing = base.activeExperts / traffic.experts
  const expertUs = profile.decode.perActiveExpertUs * profile.shape.layers * base.fullestRankExperts
  const share = expertUs / (base.tpotMeanMs * 1000)
  return [
    { kind: 'small_batches', value: base.batch, threshold: SMALL_BATCH, against: base.batch < SMALL_BATCH },
    {
      kind: 'every_expert_fires',
      value: firing,
      threshold: NEARLY_ALL,
      against: firing >= NEARLY_ALL && saved < WORTH,
    },
    { kind: 'no_structure', value: saved, threshold: WORTH, against: saved < WORTH },
    ...(rho === undefined
      ? []
      : [{ kind: 'weak_signature', value: rho, threshold: WEAK_RHO, against: rho < WEAK_RHO } as const]),
    { kind: 'other_costs', value: share, threshold: SMALL_SHARE, against: share < SMALL_SHARE },
    {
      kind: 'prefill_bound',
      value: best.highest.value ?? 0,
      threshold: null,
      against: isPrefillBound(best.highest),
    },
  ]
}
