/** Picks the worker of each leg. A request counts as load there from the decision on. */
import type { Dispatch, Registry } from '../../cluster/registry.ts'
import type { Conversations, KeptTurn, Turn } from '../../policy/conversations.ts'
import type { Unseen } from '../../policy/anticipate.ts'
import type { DecodePolicy, RoutableRequest } from '../../policy/decode-policy.ts'
import type { PrefillPolicy } from '../../policy/prefill-policy.ts'
import type { DecisionRecord } from '../observe/decision-log.ts'
import type { Decisions } from '../observe/decisions.ts'
import { LiveRequests } from './live-requests.ts'
import { DecidedPlacement, DispatchPlacement, type PlacementEnd, type SeenOfWorker } from './placement.ts'
import { type HandoffExperts, type Shape, shapeIn } from './read-experts.ts'
import type { Reading, RoutingTable } from './routing-table.ts'
import { RecordedRandom } from './shadow/recorded-random.ts'
import { useFallback, usesFallback } from './table-policy.ts'

export interface RouterOptions {
  readonly registry: Registry
  /** Told of every decision. */
  readonly decisions: Decisions
  readonly prefillPolicy: PrefillPolicy
  readonly table: RoutingTable
  /** Creates a table for a model whose shape is known only from its first hand-off. */
  readonly tableFor?: (shape: Shape) => RoutingTable
  readonly random?: () => number
  /** Undefined if conversations are not followed. */
  readonly conversations?: Conversations | undefined
  /** Other gateways in front of the same workers. */
  readonly replicas?: RoutingSharing
  /**
   * Told of every placed request that is signed by the artifact's first signature, and of its plain counts.
   */
  readonly sampled?: (request: RoutableRequest, plain: Uint16Array | undefined) => void
  /** Told of a worker that did not respond to a request. */
  readonly unreachable?: (worker: string) => void
}

export interface RoutingSharing {
  readonly unseen: Unseen
  policyChanged(policy: DecodePolicy): void
}

interface Placing {
  readonly id: string
  readonly reading: Reading
  readonly tokens: number
  readonly exclude: ReadonlySet<string>
  readonly turn: Turn | undefined
  /** Only on the worker that has the KV cache of this turn's conversation, which prefills the rest. */
  readonly alone?: KeptTurn
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
    if (table !== this.#table) this.#table.shadow?.replaced()
    this.#table = table
    this.#options.replicas?.policyChanged(table.policy)
    table.shadow?.started(table.policy.name)
    this.#live.moveTo(table)
  }

  /** Decode workers that a request, or its parts, are on now. */
  decodeWorkersOf(id: string): string[] {
    return this.#live.workersOf(id)
  }

  /** Requests on decode workers now, with the index of each one's worker. */
  inflight(): { readonly request: RoutableRequest; readonly worker: number }[] {
    return this.#live.all()
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
    turn?: Turn,
  ): DecidedPlacement | undefined {
    const { registry, conversations } = this.#options
    this.#learn(handoff)
    const reading = this.#table.read(id, handoff)
    const nowMs = performance.now()
    const kept = turn && conversations?.find(turn, nowMs)
    const worker =
      kept && registry.candidates('decode', nowMs, exclude).find(candidate => candidate.id === kept.worker)
    if (worker !== undefined) reading.routable.holder = conversations!.holder(kept!, worker)
    return this.#place({ id, reading, tokens, exclude, turn })
  }

  /**
   * For a turn that the worker of the turn before can serve without a remote prefill, if the policy picks
   * that worker.
   */
  toHolder(id: string, turn: Turn, exclude: ReadonlySet<string>): DecidedPlacement | undefined {
    const { registry, conversations } = this.#options
    const nowMs = performance.now()
    const kept = conversations?.find(turn, nowMs)
    if (kept === undefined) return undefined
    const candidates = registry.candidates('decode', nowMs, exclude)
    const worker = candidates.find(candidate => candidate.id === kept.worker)
    const holder = worker && conversations!.holderAlone(kept, turn, worker)
    if (holder === undefined) return undefined
    const { request } = kept
    // Signatures of another artifact cannot be compared.
    const signature = kept.signedBy === this.#signedBy ? request.signature : undefined
    const routable: RoutableRequest = { id, counts: request.counts, signature, holder }
    if (usesFallback(request)) useFallback(routable)
    return this.#place({ id, reading: { routable }, tokens: turn.tokens, exclude, turn, alone: kept })
  }

  #place({ id, reading, tokens, exclude, turn, alone }: Placing): DecidedPlacement | undefined {
    const { registry, replicas, decisions, sampled, unreachable, conversations } = this.#options
    const nowMs = performance.now()
    const { policy, shadow } = this.#table
    const { routable, reject, covered, plain } = reading
    const signedBy = this.#signedBy
    const tried = new Set(exclude)
    for (;;) {
      const candidates = registry.candidates('decode', nowMs, tried)
      if (candidates.length === 0) return undefined
      const ties = shadow && new RecordedRandom(this.#context.random)
      const decision = policy.pick(routable, candidates, ties ?? this.#context)
      const isKept = decision.worker === routable.holder?.worker
      if (alone && !isKept) return undefined
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
      // A request that is tried again elsewhere was sampled at its first attempt.
      if (exclude.size === 0 && !alone && !usesFallback(routable)) sampled?.(routable, plain)
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
      if (alone !== undefined) conversations?.skips(alone)
      const left = (how: PlacementEnd, seen: SeenOfWorker) => {
        const { tokens: generated = 0, tokenUs } = seen
        this.#live.leave(routable, tokenUs)
        if (alone !== undefined && turn !== undefined)
          conversations?.skipped(alone, turn, how === 'succeeded' ? seen : undefined)
        if (turn !== undefined && how === 'succeeded')
          conversations?.ended(turn, { worker: worker.id, request: routable, signedBy }, generated)
      }
      const conversation = routable.holder && (alone ? 'alone' : isKept ? 'kept' : 'moved')
      return new DecidedPlacement(
        dispatch,
        { left, unreachable },
        { decision, policy: policy.name, similarity, covered, conversation, record },
      )
    }
  }

  /** Takes over a request that another process placed. */
  adopt(id: string, handoff: HandoffExperts | undefined, dispatch: Dispatch): DispatchPlacement {
    this.#learn(handoff)
    const { routable } = this.#table.read(id, handoff)
    this.#live.take(routable, dispatch.index, dispatch.worker.id)
    return new DispatchPlacement(dispatch, { left: (_, { tokenUs }) => this.#live.leave(routable, tokenUs) })
  }

  get #signedBy(): unknown {
    return this.#table.artifact?.primary.model
  }

  /** Learns the shape of the model from its first hand-off. */
  #learn(handoff: HandoffExperts | undefined): void {
    const { tableFor } = this.#options
    const shape = this.#table.shape === undefined ? shapeIn(handoff?.counts) : undefined
    if (shape !== undefined && tableFor !== undefined) this.swap(tableFor(shape))
  }
}
