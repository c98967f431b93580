/** Counts decode decisions, keeps the last ones for the admin API and passes them to followers. */
import type { WorkerSpec } from '../../cluster/worker.ts'
import type { Decision, RoutableRequest } from '../../policy/decode-policy.ts'
import { DecisionLog, type DecisionRecord } from './decision-log.ts'
import type { FitWatch } from './insight/fit-watch.ts'
import type { Metrics } from './metrics/metrics.ts'

export interface DecisionEvent {
  readonly request: string
  readonly policy: string
  readonly decision: Decision
  readonly worker: WorkerSpec
  /** Candidates as the policy saw them. */
  readonly candidates: readonly { readonly id: string; readonly inflight: number }[]
  /** Why the counts could not be used. */
  readonly reject: string | undefined
  /** Share of the prompt covered by counts. */
  readonly covered: number | undefined
  /** Cosine to the centroid of the worker; undefined if the policy did not compare. */
  readonly similarity: number | undefined
  readonly routable: RoutableRequest
  /** Time the decision took. */
  readonly seconds: number
}

/** Receives every decision while it is active. */
export interface DecisionFollower {
  readonly isActive: boolean
  decided(record: DecisionRecord, routable: RoutableRequest): void
}

export interface DecisionsOptions {
  readonly metrics: Pick<
    Metrics,
    'workerRequests' | 'decisions' | 'rejects' | 'covered' | 'bandSize' | 'similarity' | 'routeSeconds'
  >
  /** Number of decisions kept. */
  readonly kept: number
  readonly fit?: Pick<FitWatch, 'decided'>
  readonly followers?: readonly DecisionFollower[]
  /** Called if the counts of a hand-off could not be used. */
  readonly rejected?: (reason: string, request: string) => void
}

export class Decisions {
  readonly #options: DecisionsOptions
  readonly #log: DecisionLog

  constructor(options: DecisionsOptions) {
    this.#options = options
    this.#log = new DecisionLog(options.kept)
  }

  /** Counts a request sent to a worker. */
  dispatched(leg: 'prefill' | 'decode', worker: string): void {
    this.#options.metrics.workerRequests.inc(worker, leg)
  }

  /** @returns the record, if it is kept or followed. */
  decided(event: DecisionEvent): DecisionRecord | undefined {
    const { request, policy, decision, worker, reject, covered, similarity } = event
    const { reason, similarities, band } = decision
    const { metrics, fit, followers, rejected } = this.#options
    this.dispatched('decode', worker.id)
    metrics.decisions.inc(policy, reason)
    metrics.routeSeconds.observe(event.seconds)
    if (reject !== undefined) {
      metrics.rejects.inc({ reason: reject })
      rejected?.(reject, request)
    }
    if (covered !== undefined) metrics.covered.observe(covered)
    if (band !== undefined) metrics.bandSize.observe(band)
    if (similarity !== undefined) metrics.similarity.observe(similarity)
    fit?.decided({ reason, reject, covered, best: similarities && highest(similarities) })
    const isFollowed = followers?.some(({ isActive }) => isActive) === true
    if (!this.#log.isEnabled && !isFollowed) return undefined
    const record = recordOf(event)
    this.#log.add(record)
    if (isFollowed)
      for (const follower of followers!) if (follower.isActive) follower.decided(record, event.routable)
    return record
  }

  /** Newest first. */
  last(limit?: number): DecisionRecord[] {
    return this.#log.last(limit)
  }

  /** Newest first. */
  forRequest(request: string): DecisionRecord[] {
    return this.#log.forRequest(request)
  }
}

function recordOf(event: DecisionEvent): DecisionRecord {
  const { request, policy, worker, decision, reject, covered, candidates } = event
  const { reason, band, similarities } = decision
  return {
    request,
    timeMs: Date.now(),
    policy,
    worker: worker.id,
    reason,
    band,
    reject,
    covered,
    candidates: candidates.map(({ id, inflight }, at) => ({
      id,
      inflight,
      similarity: similarities?.[at],
    })),
  }
}

/** Ignores NaN, the similarity of workers without a centroid. */
function highest(similarities: Float32Array): number | undefined {
  let best = -Infinity
  for (const one of similarities) if (one > best) best = one
  return best === -Infinity ? undefined : best
}
