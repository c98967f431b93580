import { byLoad } from './by-load.ts'
import type { DecodePolicy, PolicyDescriptor, RoutableRequest } from './decode-policy.ts'
import { type Predictor, predictorOf } from './predictor.ts'
import { createUnionState, logsOf } from './union-state.ts'

export interface UnionOptions {
  readonly workers: number
  /** MoE layers of the model, as in counts. */
  readonly layers: number
  readonly predictor: Predictor
  readonly cost: UnionCost
  /** For studies of the two constants below (bench/union-rule.mjs). */
  readonly comers?: number
  readonly tail?: number
}

/** What a decode step takes, in any unit: only ratios matter. `cost/profile.ts` gives it of a profile. */
export interface UnionCost {
  /** Whatever is in the batch. */
  readonly base: number
  /** For one more active expert in every layer. */
  readonly perExpert: number
  /** For one more request in the batch. */
  readonly perRequest: number
}

/** The prototype's step on an H200 (profile h200-first), in microseconds: 48 layers × 3.1 an expert, 25 a request. */
export const DEFAULT_COST: UnionCost = { base: 1344 + 48 * 28, perExpert: 48 * 3.1, perRequest: 25 }

/**
 * Requests that are not there yet but will be, and wait for what this one adds as those do that are. Without them a nearly empty worker
 * takes whatever comes, and requests that belong together are scattered while there is little traffic.
 */
const COMERS = 8
/**
 * Power of a worker's step time by which all it costs there is weighed: what is slow already counts for more, and the tail does not pay
 * for the median. Both constants were found on held-out calibration requests of both lab16 traces, at mean batches from 6 to 50
 * (docs/evidence/benchmarks-union.md): the median gains under little traffic and the tail under much, at little cost elsewhere.
 */
const TAIL = 0.5

/**
 * Sends a request where it costs least, going by who is on each worker now (beyond the paper; design.md, “union”). For each worker it
 * estimates the experts that a step activates, U, and those that the request would add, G. Steps there take T now and ΔT longer with it:
 * its own take T + ΔT, and each of the n requests there, and of those to come, waits ΔT more. It needs no clusters; a fit improves the
 * prediction.
 */
export function union({
  workers,
  layers,
  predictor,
  cost,
  comers = COMERS,
  tail = TAIL,
}: UnionOptions): DecodePolicy {
  const state = createUnionState(workers, predictor.cells)
  const growth = new Float32Array(workers)
  const logsOn = new Map<RoutableRequest, Uint16Array>()
  const changes = new Uint32Array(workers)

  return {
    name: 'union',
    pick(request, candidates, ctx) {
      const chances = predictor.chances(request)
      if (chances === undefined) return byLoad(candidates, ctx, 'no_counts')
      state.growth(chances, growth)
      // Of a worker beyond those that were announced nothing is known: it is priced as one that runs nothing the request could share.
      let unshared: number | undefined
      let best = -1
      let least = Infinity
      let equals = 0
      for (const { worker, inflight } of candidates) {
        const known = worker < workers
        const added = known
          ? growth[worker]!
          : (unshared ??= chances.reduce((sum, chance) => sum + chance, 0))
        const stepTime =
          cost.base +
          cost.perExpert * ((known ? state.unionOf(worker) : 0) / layers) +
          cost.perRequest * inflight
        const longer = cost.perExpert * (added / layers) + cost.perRequest
        const price = stepTime ** tail * (stepTime + longer * (1 + comers + inflight))
        if (price > least) continue
        equals = price < least ? 1 : equals + 1
        if (equals === 1 || ctx.random() * equals < 1) best = worker // among equals each with the same chance
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
    },
    released(request, worker) {
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
  setting: 'prediction',
  create({ workers, artifact, shape, cost = DEFAULT_COST, predictor = predictorOf({ artifact, shape }) }) {
    return union({ workers, layers: artifact?.about.layers ?? shape!.layers, predictor, cost })
  },
} as const satisfies PolicyDescriptor
