import type { RoutableRequest } from './decode-policy.ts'
import type { ObservedStream } from './step-cost.ts'

/**
 * Means over the life of each stream of the experts and requests on its worker. Every decision looks at all
 * workers, so decisions are the clock: arrivals see the mean over time.
 */
export interface StreamAverages {
  /** A decision has seen a worker. */
  saw(worker: number, experts: number, requests: number): void
  /** `experts`: with the request. */
  begin(request: RoutableRequest, worker: number, experts: number): void
  /** Undefined if it never began. */
  end(request: RoutableRequest): Omit<ObservedStream, 'tokenUs'> | undefined
}

interface Begun {
  readonly worker: number
  readonly count: number
  readonly experts: number
  readonly requests: number
}

export function createStreamAverages(workers: number): StreamAverages {
  const count = new Float64Array(workers)
  const experts = new Float64Array(workers)
  const requests = new Float64Array(workers)
  const lastRequests = new Float64Array(workers)
  const begun = new Map<RoutableRequest, Begun>()

  function saw(worker: number, expertsNow: number, requestsNow: number): void {
    count[worker]!++
    experts[worker]! += expertsNow
    requests[worker]! += requestsNow
    lastRequests[worker] = requestsNow
  }

  return {
    saw,
    begin(request, worker, expertsNow) {
      begun.set(request, {
        worker,
        count: count[worker]!,
        experts: experts[worker]!,
        requests: requests[worker]!,
      })
      // A stream during which there is no decision has at least this one.
      saw(worker, expertsNow, lastRequests[worker]! + 1)
    },
    end(request) {
      const began = begun.get(request)
      if (began === undefined) return undefined
      begun.delete(request)
      const { worker } = began
      const seen = count[worker]! - began.count
      return {
        experts: (experts[worker]! - began.experts) / seen,
        requests: (requests[worker]! - began.requests) / seen,
      }
    },
  }
}
