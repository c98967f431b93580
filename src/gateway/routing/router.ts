/** Picks the worker of each leg. A request counts as load there from the decision on. */
import type { Dispatch, Registry } from '../../cluster/registry.ts'
import type { Unseen } from '../../policy/anticipate.ts'
import type { DecodePolicy } from '../../policy/decode-policy.ts'
import type { PrefillPolicy } from '../../policy/prefill-policy.ts'
import type { DecisionRecord } from '../observe/decision-log.ts'
import type { Decisions } from '../observe/decisions.ts'
import { LiveRequests } from './live-requests.ts'
import { DecidedPlacement, DispatchPlacement } from './placement.ts'
import { type HandoffExperts, type Shape, shapeIn } from './read-experts.ts'
import type { RoutingTable } from './routing-table.ts'
import { RecordedRandom } from './shadow/recorded-random.ts'

export interface RouterOptions {
  readonly registry: Registry
  /** Told of every decision. */
  readonly decisions: Decisions
  readonly prefillPolicy: PrefillPolicy
  readonly table: RoutingTable
  /** Creates a table for a model whose shape is known only from its first hand-off. */
  readonly tableFor?: (shape: Shape) => RoutingTable
  readonly random?: () => number
  /** Other gateways in front of the same workers. */
  readonly replicas?: RoutingSharing
  /** Told of a worker that did not respond to a request. */
  readonly unreachable?: (worker: string) => void
}

export interface RoutingSharing {
  readonly unseen: Unseen
  policyChanged(policy: DecodePolicy): void
}

export class Router {
  prefillPolicy: PrefillPolicy
  readonly #options: RouterOptions
  readonly #context: { random(): number }
  readonly #live: LiveRequests
  #table: RoutingTable

  constructor(options: RouterOptions) {
    this.#options = options
    this.#context = { random: options.random ?? Math.random }
    this.prefillPolicy = options.prefillPolicy
    this.#table = options.table
    this.#live = new LiveRequests(options.table)
    options.table.shadow?.started(options.table.policy.name)
  }

  get table(): RoutingTable {
    return this.#table
  }

  /** Decisions follow this table from now on. Requests in flight stay where they are. */
  swap(table: RoutingTable): void {
    this.#table = table
    this.#options.replicas?.policyChanged(table.policy)
    table.shadow?.started(table.policy.name)
    this.#live.moveTo(table)
  }

  /** Decode workers that a request, or its parts, are on now. */
  decodeWorkersOf(id: string): string[] {
    return this.#live.workersOf(id)
  }

  /** Newest first. */
  decisions(limit?: number): DecisionRecord[] {
    return this.#options.decisions.last(limit)
  }

  decisionsOf(id: string): DecisionRecord[] {
    return this.#options.decisions.forRequest(id)
  }

  toPrefill(
    prefixKey: number | undefined,
    tokens: number,
    exclude: ReadonlySet<string>,
  ): DispatchPlacement | undefined {
    const { registry, decisions, unreachable } = this.#options
    const { prefillPolicy } = this
    const nowMs = performance.now()
    const tried = new Set(exclude)
    for (;;) {
      const candidates = registry.candidates('prefill', nowMs, tried)
      if (candidates.length === 0) return undefined
      const { worker } = prefillPolicy.pick({ prefixKey }, candidates, this.#context)
      const dispatch = registry.dispatch('prefill', worker, tokens, nowMs)
      if (dispatch !== undefined) {
        prefillPolicy.dispatched?.(worker)
        decisions.dispatched('prefill', dispatch.worker.id)
        return new DispatchPlacement(dispatch, { unreachable })
      }
      tried.add(candidates.find(candidate => candidate.worker === worker)!.id)
    }
  }

  /** `handoff`: undefined without prefill. Undefined when no worker takes requests. */
  toDecode(
    id: string,
    handoff: HandoffExperts | undefined,
    tokens: number,
    exclude: ReadonlySet<string>,
  ): DecidedPlacement | undefined {
    const { registry, replicas, decisions, unreachable } = this.#options
    const nowMs = performance.now()
    this.#learn(handoff)
    const { policy, shadow } = this.#table
    const { routable, reject, covered } = this.#table.read(id, handoff)
    const tried = new Set(exclude)
    for (;;) {
      const candidates = registry.candidates('decode', nowMs, tried)
      if (candidates.length === 0) return undefined
      const ties = shadow && new RecordedRandom(this.#context.random)
      const decision = policy.pick(routable, candidates, ties ?? this.#context)
      const dispatch = registry.dispatch('decode', decision.worker, tokens, nowMs)
      if (dispatch === undefined) {
        tried.add(candidates.find(({ worker }) => worker === decision.worker)!.id)
        continue
      }
      const { worker } = dispatch
      if (ties !== undefined)
        shadow?.decided({
          routable,
          candidates,
          policy: policy.name,
          decision,
          ties,
          inFlight: () => this.#live.inFlight(),
        })
      this.#live.take(routable, decision.worker, worker.id)
      replicas?.unseen.sent(decision.worker)
      const cosine = decision.similarities?.[candidates.findIndex(candidate => candidate.id === worker.id)]
      const similarity = cosine === undefined || Number.isNaN(cosine) ? undefined : cosine
      const record = decisions.decided({
        request: id,
        policy: policy.name,
        decision,
        worker,
        candidates,
        reject,
        covered,
        similarity,
        routable,
        seconds: (performance.now() - nowMs) / 1000,
      })
      const left = () => this.#live.leave(routable)
      return new DecidedPlacement(
        dispatch,
        { left, unreachable },
        { decision, policy: policy.name, similarity, covered, record },
      )
    }
  }

  /** Takes over a request that another process placed. */
  adopt(id: string, handoff: HandoffExperts | undefined, dispatch: Dispatch): DispatchPlacement {
    this.#learn(handoff)
    const { routable } = this.#table.read(id, handoff)
    this.#live.take(routable, dispatch.index, dispatch.worker.id)
    return new DispatchPlacement(dispatch, { left: () => this.#live.leave(routable) })
  }

  /** Learns the shape of the model from its first hand-off. */
  #learn(handoff: HandoffExperts | undefined): void {
    const { tableFor } = this.#options
    const shape = this.#table.shape === undefined ? shapeIn(handoff?.counts) : undefined
    if (shape !== undefined && tableFor !== undefined) this.swap(tableFor(shape))
  }
}
