import { loadsOf } from './load.ts'
import type { Candidate, RoutableRequest } from './decode-policy.ts'
import type { Predictor } from './predictor.ts'
import { createUnionState, logsOf } from './union-state.ts'
import { fixedCosts, type StepCosts, type UnionCost } from './step-cost.ts'

export interface StepJudgeOptions {
  readonly workers: number
  /** MoE layers of the model, as in counts. */
  readonly layers: number
  readonly predictor: Predictor
  readonly cost: UnionCost | StepCosts
}

/** What it is expected to mean for a worker that the request joins its batch. */
export interface ExpectedStep {
  /** Distinct experts of a step with the request, mean over the layers. */
  readonly experts: number
  /**
   * What a step of the request costs, in the unit of the cost: the time of the step, and what the request
   * adds to it once more for each of the others there, who wait as long. The time of the step alone would
   * favour the emptiest worker, whatever the request does to the others.
   */
  readonly cost: number
}

/** Estimates the cost of a decision, whichever policy made it, as the policy union does. */
export interface StepJudge {
  /** Undefined if nothing is known about the request's experts or about the worker. */
  after(
    request: RoutableRequest,
    candidates: readonly Candidate[],
  ): ((worker: number) => ExpectedStep | undefined) | undefined
  dispatched(request: RoutableRequest, worker: number): void
  released(request: RoutableRequest, worker: number): void
}

export function createStepJudge({ workers, layers, predictor, cost }: StepJudgeOptions): StepJudge {
  const state = createUnionState(workers, predictor.cells)
  const costs = 'of' in cost ? cost : fixedCosts(cost)
  const logsOn = new Map<RoutableRequest, Uint16Array>()
  return {
    after(request, candidates) {
      const chances = predictor.chances(request)
      if (chances === undefined) return undefined
      const loads = loadsOf(candidates)
      return worker => {
        const at = candidates.findIndex(candidate => candidate.worker === worker)
        if (worker >= workers || at < 0) return undefined
        const added = state.growthOn(worker, chances) / layers
        const experts = state.unionOf(worker) / layers + added
        const others = loads[at]!
        const { base, perExpert, perRequest } = costs.of(worker)
        const stepTime = base + perExpert * experts + perRequest * (others + 1)
        return { experts, cost: stepTime + (perExpert * added + perRequest) * others }
      }
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
