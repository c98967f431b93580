import { byLoad } from './by-load.ts'
import type { Candidate, DecodePolicy, PolicyDescriptor, RoutableRequest } from './decode-policy.ts'
import { loadsOf } from './load.ts'
import { type Predictor, predictorOf } from './predictor.ts'
import { createStreamAverages } from './stream-averages.ts'
import { fixedCosts, type StepCosts, sumOf, type UnionCost } from './step-cost.ts'
import { createUnionState, logsOf } from './union-state.ts'

export interface UnionOptions {
  readonly workers: number
  /** MoE layers of the model, as in counts. */
  readonly layers: number
  readonly predictor: Predictor
  /** Cost of a step: the same on all workers, or of each of them. */
  readonly cost: UnionCost | StepCosts
  /** Override the two constants below, for studies (bench/union-rule.mjs). */
  readonly expectedArrivals?: number
  readonly tail?: number
}

/**
 * The prototype's step on an H200 (profile h200-first), in microseconds: 48 layers × 3.1 per expert, 25 per
 * request.
 */
export const DEFAULT_COST: UnionCost = { base: 1344 + 48 * 28, perExpert: 48 * 3.1, perRequest: 25 }

/**
 * Expected arrivals: future requests that will also pay for the experts this one adds. Without them a nearly
 * empty worker takes any request, and requests that belong together are scattered while there is little
 * traffic.
 */
const EXPECTED_ARRIVALS = 8
/**
 * Exponent of a worker's step time by which its cost is weighted: slow workers count for more, so that the
 * tail does not pay for the median. Both constants were tuned on held-out calibration requests of both lab16
 * traces, at mean batches from 6 to 50 (docs/evidence/benchmarks-union.md): the median gains under little
 * traffic and the tail under much, at little cost elsewhere.
 */
const TAIL = 0.5
/**
 * Share of a step that the worker with the KV cache of the conversation may seem to save: it bounds what a
 * wrong memory can cost.
 */
const MAX_SAVED = 0.25

/**
 * Load, as a multiple of the mean of the other workers, from which a worker's learnt speed no longer attracts
 * requests: a worker whose times are too good to be true would otherwise get all of them.
 */
const FULL = 1.25
/**
 * Slow workers pass load on until the others have this many times the mean load; from then on all workers are
 * priced alike. In a small cluster each of the others would take so much that the median rises: with one of
 * four workers 1.5 times slower, a foreign artifact and batch 12, p50 was 2.8 % above jsq without a limit,
 * 0.8 % at 1.08 and 0.5 % below at 1.04 (calibration traces). One of 16 does not reach it. If half of the
 * workers are slow, they pass nothing on: with one of two, 4 % more load cost 2 points of p50 for 1 of p99.
 */
const MAX_TAKEN = 1.06
/** A worker is slow from this many times the cluster's cost on: learnt speeds differ a little by chance. */
const SLOW = 1.1
/** No worker has this index: its learnt cost is that of the cluster. */
const CLUSTER = -1

/**
 * Sends a request where it costs least, given the requests on each worker now (not in the paper; see
 * docs/start/concepts.md). For each worker it estimates the experts that a step activates, U, and those that
 * the request would add, G. A step there takes T now and ΔT longer with the request: its own steps take
 * T + ΔT, and each of the n requests there, and of the expected arrivals, waits ΔT more. On the worker that
 * holds the KV cache of the conversation, its steps are shorter by what that saves. It needs no clusters; a
 * fit improves the prediction.
 */
export function union({
  workers,
  layers,
  predictor,
  cost,
  expectedArrivals = EXPECTED_ARRIVALS,
  tail = TAIL,
}: UnionOptions): DecodePolicy {
  const state = createUnionState(workers, predictor.cells)
  const growth = new Float32Array(workers)
  const costs = 'of' in cost ? cost : fixedCosts(cost)
  const averages = costs.observe && createStreamAverages(workers)
  const logsOn = new Map<RoutableRequest, Uint16Array>()
  const changes = new Uint32Array(workers)

  /** A worker that has more than its share of the load is not priced as faster than the cluster. */
  function costOf(worker: number, isFull: boolean): UnionCost {
    const own = costs.of(worker)
    if (!isFull) return own
    const usual = costs.of(CLUSTER)
    return sumOf(usual) > sumOf(own) ? usual : own
  }

  /** True if the workers that are not slow have taken as much as they may. */
  function othersHaveTaken(candidates: readonly Candidate[], loads: Float64Array, total: number): boolean {
    if (!('of' in cost)) return false
    const slow = SLOW * sumOf(costs.of(CLUSTER))
    let [others, taken] = [0, 0]
    for (const [at, { worker }] of candidates.entries()) {
      if (sumOf(costs.of(worker)) > slow) continue
      others++
      taken += loads[at]!
    }
    return 2 * others <= loads.length || taken * loads.length > MAX_TAKEN * total * others
  }

  return {
    name: 'union',
    pick(request, candidates, ctx) {
      const chances = predictor.chances(request)
      if (chances === undefined) return byLoad(candidates, ctx, 'no_counts')
      state.growth(chances, growth)
      // Nothing is known about a worker beyond `workers`: it is priced as one that shares no expert with the
      // request.
      let unshared: number | undefined
      let best = -1
      let least = Infinity
      let equals = 0
      const loads = loadsOf(candidates)
      const { holder } = request
      const total = loads.reduce((sum, load) => sum + load, 0)
      const haveTaken = othersHaveTaken(candidates, loads, total)
      for (const [at, { worker }] of candidates.entries()) {
        const load = loads[at]!
        const known = worker < workers
        const added = known
          ? growth[worker]!
          : (unshared ??= chances.reduce((sum, chance) => sum + chance, 0))
        const experts = known ? state.unionOf(worker) / layers : 0
        if (known) averages?.saw(worker, experts, candidates[at]!.inflight)
        const { base, perExpert, perRequest } = haveTaken
          ? costs.of(CLUSTER)
          : costOf(worker, load * (loads.length - 1) > FULL * (total - load))
        const stepTime = base + perExpert * experts + perRequest * load
        const longer = perExpert * (added / layers) + perRequest
        const saved = holder?.worker === worker ? Math.min(holder.savedUsPerStep, MAX_SAVED * stepTime) : 0
        const price = stepTime ** tail * (stepTime - saved + longer * (1 + expectedArrivals + load))
        if (price > least) continue
        equals = price < least ? 1 : equals + 1
        if (equals === 1 || ctx.random() * equals < 1) best = worker // ties have equal chances
        least = price
      }
      return { worker: best, reason: 'least_cost' }
    },
    dispatched(request, worker) {
      const chances = predictor.chances(request)
      if (chances === undefined || worker >= workers || logsOn.has(request)) return
      const logs = logsOf(chances)
      logsOn.set(request, logs)
      state.add(worker, logs, 1)
      changes[worker]!++
      averages?.begin(request, worker, state.unionOf(worker) / layers)
    },
    released(request, worker, tokenUs) {
      const stream = averages?.end(request)
      if (stream !== undefined && tokenUs !== undefined) costs.observe!(worker, { tokenUs, ...stream })
      const logs = logsOn.get(request)
      if (logs === undefined) return
      logsOn.delete(request)
      state.add(worker, logs, -1)
      changes[worker]!++
    },
    sums: {
      workers,
      cells: predictor.cells,
      of: state.sums,
      add: state.addSums,
      changes: worker => changes[worker]!,
    },
    expectedExperts: worker => (worker < workers ? state.chances(worker) : undefined),
  }
}

export const UNION = {
  name: 'union',
  needs: ['counts'],
  reasons: ['least_cost'],
  herds: true,
  pricesHolder: true,
  setting: 'prediction',
  create({
    workers,
    artifact,
    shape,
    cost = DEFAULT_COST,
    learnt,
    predictor = predictorOf({ artifact, shape }),
  }) {
    return union({
      workers,
      layers: artifact?.about.layers ?? shape!.layers,
      predictor,
      cost: learnt ?? cost,
    })
  },
} as const satisfies PolicyDescriptor
