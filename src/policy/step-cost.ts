/** Cost of a decode step, in microseconds. `cost/profile.ts` derives it from a profile. */
export interface UnionCost {
  /** Of an empty batch. */
  readonly base: number
  /** Per active expert in every layer. */
  readonly perExpert: number
  /** Per request in the batch. */
  readonly perRequest: number
}

/**
 * Its parts together, to compare costs of the same proportions, which those of workers are: any part may be
 * 0.
 */
export const sumOf = ({ base, perExpert, perRequest }: UnionCost): number => base + perExpert + perRequest

/** Costs of a step on each decode worker. */
export interface StepCosts {
  of(worker: number): UnionCost
  /** Absent if costs are fixed. */
  observe?(worker: number, stream: ObservedStream): void
}

/** A stream that has ended. */
export interface ObservedStream {
  /** Mean time between its tokens. */
  readonly tokenUs: number
  /** Experts per layer that a step of its worker was expected to fire, mean over its life. */
  readonly experts: number
  /** Requests on its worker, itself included, mean over its life. */
  readonly requests: number
}

/** A shorter stream says little about a step. */
export const MIN_STREAM_TOKENS = 8

export function fixedCosts(cost: UnionCost): StepCosts {
  return { of: () => cost }
}
