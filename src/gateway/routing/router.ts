/** Picks the worker of each leg, counts the request there from that moment, and remembers the last decisions for whoever asks. */
import type { Dispatch, Registry } from '../../cluster/registry.ts'
import type { Unseen } from '../../policy/anticipate.ts'
import type { Decision, DecodePolicy, RoutableRequest } from '../../policy/decode-policy.ts'
import type { PrefillPolicy } from '../../policy/prefill-policy.ts'
import type { Metrics } from '../observe/metrics/metrics.ts'
import { DecisionLog, type DecisionRecord } from '../observe/decision-log.ts'
import { LiveRequests } from './live-requests.ts'
import { type HandoffExperts, type Shape, shapeIn } from './read-experts.ts'
import type { Reading, RoutingTable } from './routing-table.ts'

export type { DecisionRecord } from '../observe/decision-log.ts'

export interface RouterOptions {
  readonly registry: Registry
  readonly metrics: Metrics
  readonly prefillPolicy: PrefillPolicy
  readonly table: RoutingTable
  /** Makes a table for a model whose shape is known only now, from its first hand-off. */
  readonly tableFor?: (shape: Shape) => RoutingTable
  readonly decisionsKept: number
  readonly random?: () => number
  /** Other gateways before the same workers, where there are any: hears of each decode dispatch, and of another policy. */
  readonly replicas?: RoutingSharing
  /** Who follows decisions as they are made; nothing is written down for nobody. */
  readonly followers?: {
    readonly any: boolean
    decided(record: DecisionRecord, routable: RoutableRequest): void
  }
  /** Hears of every decision. `best`: cosine to the nearest centroid. */
  readonly counted?: (decided: {
    readonly reason: string
    readonly reject?: string
    readonly covered?: number
    readonly best?: number
  }) => void
  /** Counts of a hand-off cannot be used. */
  readonly rejected?: (reason: string, request: string) => void
}

export interface RoutingSharing {
  readonly unseen: Unseen
  policyChanged(policy: DecodePolicy): void
}

/** A request on a decode worker. End its dispatch and then `left`, once each. */
export interface DecodePlacement {
  readonly dispatch: Dispatch
  readonly decision: Decision
  /** The policy that decided. */
  readonly policy: string
  /** Cosine to the centroid of the worker, and share of the prompt whose experts are known; undefined where nobody looked. */
  readonly similarity: number | undefined
  readonly covered: number | undefined
  /** Absent when nobody would read it. */
  readonly record?: DecisionRecord
  left(): void
}

export class Router {
  prefillPolicy: PrefillPolicy
  readonly #options: RouterOptions
  readonly #context: { random(): number }
  readonly #live: LiveRequests
  readonly #log: DecisionLog
  #table: RoutingTable

  constructor(options: RouterOptions) {
    this.#options = options
    this.#context = { random: options.random ?? Math.random }
    this.prefillPolicy = options.prefillPolicy
    this.#log = new DecisionLog(options.decisionsKept)
    this.#table = options.table
    this.#live = new LiveRequests(options.table)
  }

  get table(): RoutingTable {
    return this.#table
  }

  /** From now on decisions are made by this table. Requests in flight stay where they are. */
  swap(table: RoutingTable): void {
    this.#table = table
    this.#options.replicas?.policyChanged(table.policy)
    this.#live.moveTo(table)
  }

  /** Decode workers that a request, or parts of it, are on now. */
  decodeWorkersOf(id: string): string[] {
    return this.#live.workersOf(id)
  }

  /** The last first. */
  decisions(limit?: number): DecisionRecord[] {
    return this.#log.last(limit)
  }

  decisionsOf(id: string): DecisionRecord[] {
    return this.#log.of(id)
  }

  toPrefill(
    prefixKey: number | undefined,
    tokens: number,
    exclude: ReadonlySet<string>,
  ): Dispatch | undefined {
    const { registry } = this.#options
    const { prefillPolicy } = this
    const nowMs = performance.now()
    const tried = new Set(exclude)
    for (;;) {
      const candidates = registry.candidates('prefill', nowMs, tried)
      if (candidates.length === 0) return undefined
      const { worker } = prefillPolicy.pick(
        prefixKey === undefined ? {} : { prefixKey },
        candidates,
        this.#context,
      )
      const dispatch = registry.dispatch('prefill', worker, tokens, nowMs)
      if (dispatch !== undefined) {
        prefillPolicy.dispatched?.(worker)
        this.#options.metrics.workerRequests.inc(dispatch.worker.id, 'prefill')
        return dispatch
      }
      tried.add(candidates.find(candidate => candidate.worker === worker)!.id)
    }
  }

  /** `handoff`: absent when there was no prefill. Undefined when no worker takes requests. */
  toDecode(
    id: string,
    handoff: HandoffExperts | undefined,
    tokens: number,
    exclude: ReadonlySet<string>,
  ): DecodePlacement | undefined {
    const { registry, metrics } = this.#options
    const nowMs = performance.now()
    this.#learn(handoff)
    const { policy } = this.#table
    const reading = this.#table.read(id, handoff)
    const tried = new Set(exclude)
    for (;;) {
      const candidates = registry.candidates('decode', nowMs, tried)
      if (candidates.length === 0) return undefined
      const decision = policy.pick(reading.routable, candidates, this.#context)
      const dispatch = registry.dispatch('decode', decision.worker, tokens, nowMs)
      if (dispatch === undefined) {
        tried.add(candidates.find(({ worker }) => worker === decision.worker)!.id)
        continue
      }
      this.#live.take(reading.routable, decision.worker, dispatch.worker.id)
      this.#options.replicas?.unseen.sent(decision.worker)
      const cosine =
        decision.similarities?.[candidates.findIndex(candidate => candidate.id === dispatch.worker.id)]
      const similarity = cosine === undefined || Number.isNaN(cosine) ? undefined : cosine
      const record = this.#record(id, reading, decision, candidates, dispatch, similarity)
      metrics.routeSeconds.observe((performance.now() - nowMs) / 1000)
      const { covered, routable } = reading
      return {
        dispatch,
        decision,
        policy: policy.name,
        similarity,
        covered,
        ...(record && { record }),
        left: () => this.#live.leave(routable),
      }
    }
  }

  /** A request that was placed before, by another. @returns what to call when it has left. */
  adopt(id: string, handoff: HandoffExperts | undefined, { index, worker }: Dispatch): () => void {
    this.#learn(handoff)
    const { routable } = this.#table.read(id, handoff)
    this.#live.take(routable, index, worker.id)
    return () => this.#live.leave(routable)
  }

  /** Of the model, from its first hand-off. */
  #learn(handoff: HandoffExperts | undefined): void {
    const { tableFor } = this.#options
    const shape = this.#table.shape === undefined ? shapeIn(handoff?.counts) : undefined
    if (shape !== undefined && tableFor !== undefined) this.swap(tableFor(shape))
  }

  #record(
    request: string,
    { reject, covered, routable }: Reading,
    { reason, similarities, band }: Decision,
    candidates: readonly { readonly id: string; readonly inflight: number }[],
    dispatch: Dispatch,
    similarity: number | undefined,
  ): DecisionRecord | undefined {
    const { metrics, followers, rejected, counted } = this.#options
    const policy = this.#table.policy.name
    metrics.decisions.inc(policy, reason)
    metrics.workerRequests.inc(dispatch.worker.id, 'decode')
    if (reject !== undefined) {
      metrics.rejects.inc({ reason: reject })
      rejected?.(reject, request)
    }
    if (covered !== undefined) metrics.covered.observe(covered)
    if (band !== undefined) metrics.bandSize.observe(band)
    if (similarity !== undefined) metrics.similarity.observe(similarity)
    const best = similarities && bestOf(similarities)
    counted?.({
      reason,
      ...(reject !== undefined && { reject }),
      ...(covered !== undefined && { covered }),
      ...(best !== undefined && { best }),
    })
    if (!this.#log.keeps && followers?.any !== true) return undefined
    const record: DecisionRecord = {
      request,
      timeMs: Date.now(),
      policy,
      worker: dispatch.worker.id,
      reason,
      ...(band !== undefined && { band }),
      ...(reject !== undefined && { reject }),
      ...(covered !== undefined && { covered }),
      candidates: candidates.map(({ id, inflight }, c) => ({
        id,
        inflight,
        ...(similarities && { similarity: similarities[c]! }),
      })),
    }
    this.#log.add(record)
    if (followers?.any === true) followers.decided(record, routable)
    return record
  }
}

/** Workers without a centroid have none. */
function bestOf(similarities: Float32Array): number | undefined {
  let best = -Infinity
  for (const one of similarities) if (one > best) best = one
  return best === -Infinity ? undefined : best
}
