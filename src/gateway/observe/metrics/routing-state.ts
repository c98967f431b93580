interface StepCost {
  readonly base: number
  readonly perExpert: number
  readonly perRequest: number
  readonly streams: number
  /** Time of a step over that of the cluster. */
  readonly timeRatio: number
}

/** What metrics show of the routing in force. `routing/routing-control.ts` provides it. */
export interface RoutingState {
  view(): {
    readonly policy: string
    readonly prefillPolicy: string
    readonly artifact?: { readonly sha256: string; readonly model: string; readonly clusters: number }
    /** Set if the clusters do not match the decode workers. */
    readonly note?: string
  }
  /** Learnt cost of a step of a decode worker, in microseconds; undefined if there is none. */
  stepCostOf(index: number): StepCost | undefined
  readonly loaded:
    | {
        readonly artifact: {
          readonly about: {
            readonly bestSimilarity?: readonly { readonly q: number; readonly value: number }[]
          }
        }
      }
    | undefined
}
