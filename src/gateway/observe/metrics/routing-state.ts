/** What metrics show of the routing in force. `routing/routing-control.ts` provides it. */
export interface RoutingState {
  view(): {
    readonly policy: string
    readonly prefillPolicy: string
    readonly artifact?: { readonly sha256: string; readonly model: string; readonly clusters: number }
    /** Set if the clusters do not match the decode workers. */
    readonly note?: string
  }
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
