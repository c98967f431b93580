/**
 * What shadow policies would have decided: agreement with the policy in force, and the expected experts and
 * cost of either decision. Totals are for metrics; the view starts again when the routing changes, because
 * counts of different policies or artifacts cannot be compared.
 */
import type { PolicyName } from '../../policy/decode-policy.ts'
import type { ShadowRow, ShadowState, ShadowView } from './insight/wire.ts'

/** Sums over decisions. Experts and costs are expected values (policy/step-judge.ts). */
interface Tally {
  decisions: number
  agreed: number
  /** Decisions of requests whose experts could be predicted: only these are in the sums below. */
  judged: number
  shadowExperts: number
  inForceExperts: number
  shadowUs: number
  inForceUs: number
}

export interface ShadowDecision {
  readonly policy: string
  readonly inForce: string
  readonly agrees: boolean
  /** Undefined if the request's experts could not be predicted. */
  readonly judged?: { readonly shadow: Step; readonly inForce: Step }
}

interface Step {
  readonly experts: number
  /** Microseconds of the cost profile. */
  readonly cost: number
}

const emptyTally = (): Tally => ({
  decisions: 0,
  agreed: 0,
  judged: 0,
  shadowExperts: 0,
  inForceExperts: 0,
  shadowUs: 0,
  inForceUs: 0,
})

export interface ShadowTotal extends Readonly<Tally> {
  readonly policy: string
  readonly inForce: string
}

export class ShadowCounts {
  readonly policies: readonly PolicyName[]
  readonly errors = new Map<string, number>()
  readonly #totals = new Map<string, { policy: string; inForce: string; tally: Tally }>()
  readonly #states = new Map<string, { readonly state: ShadowState; readonly why?: string }>()
  #recent = new Map<string, Tally>()
  /** Decisions of the policy in force. */
  requests = 0
  #inForce = ''
  #sinceMs = Date.now()

  constructor(policies: readonly PolicyName[]) {
    this.policies = policies
    for (const policy of policies) this.errors.set(policy, 0)
  }

  get totals(): ShadowTotal[] {
    return [...this.#totals.values()].map(({ policy, inForce, tally }) => ({ policy, inForce, ...tally }))
  }

  /** A routing table is in force, with this policy; `missing`: what shadows lack, by policy. */
  routingChanged(inForce: string, missing: ReadonlyMap<string, string>): void {
    this.#inForce = inForce
    this.#sinceMs = Date.now()
    this.#recent = new Map()
    this.requests = 0
    for (const policy of this.policies) {
      const why = missing.get(policy)
      this.#states.set(policy, why === undefined ? { state: 'deciding' } : { state: 'waiting', why })
    }
  }

  failed(policy: string, error: unknown): void {
    this.errors.set(policy, (this.errors.get(policy) ?? 0) + 1)
    this.#states.set(policy, {
      state: 'failed',
      why: error instanceof Error ? error.message : String(error),
    })
  }

  decided({ policy, inForce, agrees, judged }: ShadowDecision): void {
    for (const tally of [this.#total(policy, inForce), this.#recentOf(policy)]) {
      tally.decisions++
      if (agrees) tally.agreed++
      if (judged === undefined) continue
      tally.judged++
      tally.shadowExperts += judged.shadow.experts
      tally.inForceExperts += judged.inForce.experts
      tally.shadowUs += judged.shadow.cost
      tally.inForceUs += judged.inForce.cost
    }
  }

  view(): ShadowView {
    return {
      inForce: this.#inForce,
      sinceMs: this.#sinceMs,
      requests: this.requests,
      shadows: this.policies.map(policy => this.#rowOf(policy)),
    }
  }

  #rowOf(policy: string): ShadowRow {
    const tally = this.#recentOf(policy)
    const { decisions, agreed, judged } = tally
    const mean = (shadow: number, inForce: number) =>
      judged === 0 ? undefined : { shadow: shadow / judged, inForce: inForce / judged }
    return {
      policy,
      ...(this.#states.get(policy) ?? { state: 'waiting' }),
      decisions,
      agreed,
      judged,
      experts: mean(tally.shadowExperts, tally.inForceExperts),
      costUs: mean(tally.shadowUs, tally.inForceUs),
    }
  }

  #recentOf(policy: string): Tally {
    let tally = this.#recent.get(policy)
    if (tally === undefined) this.#recent.set(policy, (tally = emptyTally()))
    return tally
  }

  #total(policy: string, inForce: string): Tally {
    const key = `${policy} ${inForce}`
    let total = this.#totals.get(key)
    if (total === undefined) this.#totals.set(key, (total = { policy, inForce, tally: emptyTally() }))
    return total.tally
  }
}
