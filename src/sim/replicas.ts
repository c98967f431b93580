/**
 * Several gateways in front of the same decode workers. Each has its own policy, counts its own requests from
 * the decision on, and hears of the others' requests some time later, or never. It learns what gateways can
 * tell each other: a request was dispatched to worker w, and has ended there.
 */
import { createUnseen } from '../policy/anticipate.ts'
import type { DecodePolicy, RoutableRequest } from '../policy/decode-policy.ts'
import {
  addLoad,
  type DecodeDispatcher,
  type DispatcherOptions,
  idleCandidates,
} from './decode-dispatcher.ts'

export interface Replicas {
  readonly name: DecodePolicy['name']
  readonly count: number
  /** Constant age of a gateway's view of the others; 0 is exact, null never hears of them. */
  readonly viewAgeMs: number | null
  /** How requests are spread over gateways. */
  readonly entrance: 'random' | 'round_robin'
  /**
   * A new policy for one gateway. `unseen`: the estimate of the others' unseen requests, as in
   * policy/anticipate.ts; zero for gateways that it never hears of.
   */
  create(unseen: (worker: number) => number): DecodePolicy
}

/** One dispatch, or the end of one, on its way to the other gateways. */
interface LoadUpdate {
  readonly atUs: number
  readonly from: number
  readonly request: RoutableRequest
  readonly worker: number
  readonly change: 1 | -1
}

/** Delivered updates are dropped when there are this many. */
const DROP_AT = 4_096

export function replicaDispatcher(
  replicas: Replicas,
  { workers, requests, ties, entrances }: DispatcherOptions,
): DecodeDispatcher {
  const { count, viewAgeMs, entrance } = replicas
  const ageUs = viewAgeMs === null ? Infinity : viewAgeMs * 1000
  let nowUs = 0
  const gateways = Array.from({ length: count }, () => {
    const unseen = createUnseen({
      viewAgeMs: () => viewAgeMs ?? 0,
      perOwn: () => count - 1,
      nowMs: () => nowUs / 1000,
    })
    return { unseen, policy: replicas.create(unseen.on), candidates: idleCandidates(workers) }
  })
  // Drawn before the run, so that a request has the same gateway under every policy.
  const gatewayOf = Uint16Array.from({ length: requests }, (_, n) =>
    entrance === 'random' ? entrances.below(count) : n % count,
  )
  const context = { random: ties.uniform }
  let updates: LoadUpdate[] = []
  let delivered = 0

  function apply(gateway: (typeof gateways)[number], { request, worker, change }: LoadUpdate): void {
    addLoad(gateway.candidates[worker]!, request, change)
    if (gateway.policy.ownRequestsOnly) return
    if (change === 1) gateway.policy.dispatched?.(request, worker)
    else gateway.policy.released?.(request, worker)
  }

  /** Delivers all updates that are old enough to all gateways but their sender. */
  function deliverDue(): void {
    for (; delivered < updates.length && updates[delivered]!.atUs + ageUs <= nowUs; delivered++) {
      const item = updates[delivered]!
      gateways.forEach((gateway, at) => {
        if (at !== item.from) apply(gateway, item)
      })
    }
    if (delivered < DROP_AT) return
    updates = updates.slice(delivered)
    delivered = 0
  }

  function record(
    index: number,
    request: RoutableRequest,
    worker: number,
    change: 1 | -1,
    tokenUs?: number,
  ): void {
    const from = gatewayOf[index]!
    const own = gateways[from]!
    addLoad(own.candidates[worker]!, request, change)
    if (change === 1) {
      own.policy.dispatched?.(request, worker)
      own.unseen.sent(worker)
    } else own.policy.released?.(request, worker, tokenUs)
    if (count > 1 && viewAgeMs !== null) updates.push({ atUs: nowUs, from, request, worker, change })
  }

  return {
    pick(index, request, atUs) {
      nowUs = atUs
      deliverDue()
      const { policy, candidates } = gateways[gatewayOf[index]!]!
      return policy.pick(request, candidates, context)
    },
    dispatched(index, request, worker, atUs) {
      nowUs = atUs
      record(index, request, worker, 1)
    },
    released(index, request, worker, end) {
      nowUs = end.nowUs
      record(index, request, worker, -1, end.tokenUs)
    },
  }
}
