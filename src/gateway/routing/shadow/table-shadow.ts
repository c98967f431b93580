/**
 * The shadow policies of a routing table. They decide beside the policy in force, on the same request,
 * candidates, loads and random numbers, and enforce nothing. Their state is told of what was really
 * dispatched and released: batches are those that the policy in force has made.
 *
 * Their time is limited (cpu-budget.ts). When it is spent they rest; then they take over the requests in
 * flight, a few per turn of the event loop, and decide again.
 */
import type { Candidate, Decision, RoutableRequest } from '../../../policy/decode-policy.ts'
import type { ShadowCounts } from '../../observe/shadow-counts.ts'
import type { Shape } from '../read-experts.ts'
import type { TablePolicyOptions } from '../table-policy.ts'
import type { CpuBudget } from './cpu-budget.ts'
import { missingIn, PolicySet, type PolicySetOptions } from './policy-set.ts'
import type { RecordedRandom } from './recorded-random.ts'

export interface ShadowOptions extends Pick<PolicySetOptions, 'policies'> {
  readonly counts: ShadowCounts
  /** Outlives the tables. */
  readonly budget: CpuBudget
  /** Called with an error of a shadow policy, which is out until the routing changes. */
  readonly failed?: (policy: string, error: unknown) => void
}

export interface DecisionInForce {
  readonly routable: RoutableRequest
  readonly candidates: readonly Candidate[]
  readonly policy: string
  readonly decision: Pick<Decision, 'worker'>
  readonly ties: RecordedRandom
  /** Requests on workers, as the table in force counts them. */
  readonly inFlight: () => Iterable<readonly [request: RoutableRequest, worker: number]>
}

/** A phase of work is at least this long, so that taking over the requests in flight pays. */
const MIN_DECISIONS = 256
/** Time that taking over may take in a turn of the event loop. */
const TURN_MS = 1

export class TableShadow {
  readonly #options: ShadowOptions
  readonly #setOptions: PolicySetOptions
  readonly #failedPolicies = new Set<string>()
  /** Undefined at rest. */
  #set: PolicySet | undefined
  /** Requests that the policies know. */
  #known = new Map<RoutableRequest, number>()
  /** Requests in flight that they do not know yet. Undefined once they know all. */
  #unknown: Map<RoutableRequest, number> | undefined
  #decisions = 0
  #replaced = false

  constructor(options: ShadowOptions, table: TablePolicyOptions, shape: Shape | undefined) {
    this.#options = options
    this.#setOptions = {
      policies: options.policies,
      table,
      shape,
      failed: (policy, error) => this.#failed(policy, error),
    }
  }

  /** The table is in force from now on. Requests in flight are told as dispatched. */
  started(inForce: string): void {
    const { counts, budget } = this.#options
    counts.routingChanged(inForce, missingIn(this.#setOptions))
    if (!budget.isSpent) this.#begin()
  }

  /** Another table is in force: nothing more is charged for this one. */
  replaced(): void {
    this.#replaced = true
    this.#unknown = undefined
    this.#rest()
  }

  /** Call before `dispatched`. */
  decided(decided: DecisionInForce): void {
    const { counts, budget } = this.#options
    if (this.#replaced) return
    counts.requests++
    if (this.#set === undefined) {
      if (budget.isRested) this.#takeOver(decided.inFlight())
    } else if (this.#unknown === undefined) {
      budget.charge(() => this.#compare(this.#set!, decided))
      if (++this.#decisions >= MIN_DECISIONS && budget.isSpent) this.#rest()
    }
  }

  dispatched(request: RoutableRequest, worker: number): void {
    if (this.#set === undefined || this.#known.has(request)) return
    this.#known.set(request, worker)
    this.#options.budget.charge(() => this.#set!.dispatched(request, worker))
  }

  released(request: RoutableRequest, worker: number): void {
    this.#unknown?.delete(request)
    if (this.#known.delete(request)) this.#options.budget.charge(() => this.#set!.released(request, worker))
  }

  #begin(): void {
    const { policies } = this.#setOptions
    const well = policies.filter(
      policy => !this.#failedPolicies.has(typeof policy === 'string' ? policy : policy.name),
    )
    this.#options.budget.charge(() => (this.#set = new PolicySet({ ...this.#setOptions, policies: well })))
    this.#decisions = 0
  }

  #rest(): void {
    this.#set = undefined
    this.#known = new Map()
  }

  #takeOver(inFlight: Iterable<readonly [RoutableRequest, number]>): void {
    this.#begin()
    this.#unknown = new Map(inFlight)
    this.#continueTakingOver()
  }

  #continueTakingOver(): void {
    if (this.#replaced) return
    const untilMs = performance.now() + TURN_MS
    for (const [request, worker] of this.#unknown!) {
      this.#unknown!.delete(request)
      this.dispatched(request, worker)
      if (performance.now() < untilMs) continue
      setImmediate(() => this.#continueTakingOver())
      return
    }
    this.#unknown = undefined
  }

  #compare(set: PolicySet, { routable, candidates, policy: inForce, decision, ties }: DecisionInForce): void {
    const expected = set.judged(judge => judge.after(routable, candidates))
    const atForce = expected?.(decision.worker)
    set.each((policy, name) => {
      const { worker } = policy.pick(routable, candidates, ties.replay())
      if (!candidates.some(candidate => candidate.worker === worker))
        throw new RangeError(`it chose worker ${worker}, which is not a candidate`)
      const agrees = worker === decision.worker
      const atShadow = agrees ? atForce : expected?.(worker)
      const judged = atForce && atShadow && { shadow: atShadow, inForce: atForce }
      this.#options.counts.decided({ policy: name, inForce, agrees, judged })
    })
  }

  #failed(name: string, error: unknown): void {
    this.#failedPolicies.add(name)
    this.#options.counts.failed(name, error)
    this.#options.failed?.(name, error)
  }
}
