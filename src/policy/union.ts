import { byLoad } from './by-load.ts'
import type { DecodePolicy, RoutableRequest } from './decode-policy.ts'
import type { Predictor } from './predictor.ts'
import { createUnionState, logsOf } from './union-state.ts'

export interface UnionOptions {
  readonly workers: number
  /** MoE layers of the model, as in counts. */
  readonly layers: number
  readonly predictor: Predictor
  readonly cost: UnionCost
}

/** What a decode step's time grows by: only the ratio of the two matters. */
export interface UnionCost {
  /** For one more active expert in every layer, in any unit. */
  readonly perExpert: number
  /** For one more request in the batch. */
  readonly perRequest: number
}

/** The prototype's step on an H200 (profile h200-first): 48 layers × 3.1 µs an expert, 25 µs a request. */
export const DEFAULT_COST: UnionCost = { perExpert: 48 * 3.1, perRequest: 25 }

/**
 * Sends a request where it costs least, going by who is on each worker now (beyond the paper; design.md, “union”). For each worker it
 * estimates the experts that a step activates, U, and those that the request would add, G; its own steps then take U + G, and each of the
 * n requests there waits for G more: cost = perExpert·(U + G + n·G) + 2·perRequest·n. It needs no clusters; a fit improves the prediction.
 */
export function union({ workers, layers, predictor, cost }: UnionOptions): DecodePolicy {
  const state = createUnionState(workers, predictor.cells)
  const growth = new Float32Array(workers)
  const logsOn = new Map<RoutableRequest, Uint16Array>()

  return {
    name: 'union',
    pick(request, candidates, ctx) {
      const chances = predictor.chances(request)
      if (chances === undefined) return byLoad(candidates, ctx, 'no_counts')
      state.growth(chances, growth)
      let best = -1
      let least = Infinity
      let equals = 0
      for (const { worker, inflight } of candidates) {
        if (worker >= workers) continue
        const added = growth[worker]! / layers
        const price = cost.perExpert * (state.unionOf(worker) / layers + added * (1 + inflight)) + 2 * cost.perRequest * inflight
        if (price > least) continue
        equals = price < least ? 1 : equals + 1
        if (equals === 1 || ctx.random() * equals < 1) best = worker // among equals each with the same chance
        least = price
      }
      return best < 0 ? byLoad(candidates, ctx, 'no_centroid') : { worker: best, reason: 'least_cost' }
    },
    dispatched(request, worker) {
      const chances = predictor.chances(request)
      if (chances === undefined || worker >= workers || logsOn.has(request)) return
      const logs = logsOf(chances)
      logsOn.set(request, logs)
      state.add(worker, logs, 1)
    },
    released(request, worker) {
      const logs = logsOn.get(request)
      if (logs === undefined) return
      logsOn.delete(request)
      state.add(worker, logs, -1)
    },
  }
}
