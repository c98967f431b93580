import { loadsOf } from './load.ts'
import type { Candidate, RoutableRequest } from './decode-policy.ts'
import type { Predictor } from './predictor.ts'
import { createUnionState, logsOf } from './union-state.ts'
import type { UnionCost } from './union.ts'

export interface StepJudgeOptions {
  readonly workers: number
  /** MoE layers of the model, as in counts. */
  readonly layers: number
  readonly predictor: Predictor
  readonly cost: UnionCost
}

/** What a decode step of a worker is expected to be with the request in its batch. */
export interface ExpectedStep {
  /** Distinct experts, mean over the layers. */
  readonly experts: number
  /** Step time in the unit of the cost. */
  readonly cost: number
}

/** Estimates the step after a decision, whichever policy made it, as the policy union does. */
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
  const logsOn = new Map<RoutableRequest, Uint16Array>()
  return {
    after(request, candidates) {
      const chances = predictor.chances(request)
      if (chances === undefined) return undefined
      const loads = loadsOf(candidates)
      return worker => {
        const at = candidates.findIndex(candidate => candidate.worker === worker)
        if (worker >= workers || at < 0) return undefined
        const experts = (state.unionOf(worker) + state.growthOn(worker, chances)) / layers
        return { experts, cost: cost.base + cost.perExpert * experts + cost.perRequest * (loads[at]! + 1) }
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
