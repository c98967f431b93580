/** Work of decode workers between two observations, and totals per policy. */
import type { MixedBatch } from './mixed-batch.ts'
import type { Observation, ObservedWorker } from './observe.ts'

/**
 * Sums over tokens, so that parts add up; all 0 if nothing was decoded. Times are profile times: wall time ×
 * speed.
 */
export interface DecodeWork {
  readonly seconds: number
  readonly tokens: number
  /**
   * Sums over tokens of batch size, active experts and step time, and of the values for mixed batches at the
   * same token rate.
   */
  readonly batch: number
  readonly active: number
  readonly ms: number
  readonly mixedActive: number
  readonly mixedMs: number
}

export const NO_WORK: DecodeWork = {
  seconds: 0,
  tokens: 0,
  batch: 0,
  active: 0,
  ms: 0,
  mixedActive: 0,
  mixedMs: 0,
}

/** Work of one worker; `seconds` of wall time. */
export function workBetween(
  before: ObservedWorker,
  after: ObservedWorker,
  seconds: number,
  mixed: MixedBatch,
  speed: number,
): DecodeWork {
  const [from, to] = [before.own?.stats, after.own?.stats]
  // A restarted process has new counters.
  if (from === undefined || to === undefined || before.pid !== after.pid) return NO_WORK
  const [tokens, steps] = [to.decodeTokens - from.decodeTokens, to.decodeSteps - from.decodeSteps]
  const timedSteps = to.timing.steps - from.timing.steps
  if (!(tokens > 0 && steps > 0 && timedSteps > 0)) return NO_WORK
  const step = {
    batch: tokens / steps,
    active: (to.activeTokens - from.activeTokens) / tokens,
    ms: (speed * (to.timing.takenMs - from.timing.takenMs)) / timedSteps,
  }
  const other = mixed.instead(step)
  return {
    seconds: seconds * speed,
    tokens,
    batch: tokens * step.batch,
    active: tokens * step.active,
    ms: tokens * step.ms,
    mixedActive: tokens * other.active,
    mixedMs: tokens * other.ms,
  }
}

export function sumOf(all: readonly DecodeWork[], seconds: number): DecodeWork {
  const sum = (key: keyof DecodeWork) => all.reduce((total, one) => total + one[key], 0)
  const [mixedActive, mixedMs] = [sum('mixedActive'), sum('mixedMs')]
  return {
    seconds,
    tokens: sum('tokens'),
    batch: sum('batch'),
    active: sum('active'),
    ms: sum('ms'),
    mixedActive,
    mixedMs,
  }
}

/** Means over tokens. */
export interface MeanStep {
  readonly batch: number
  readonly active: number
  readonly tpotMs: number
  /** For randomly mixed batches at the same token rate. */
  readonly mixedActive: number
  readonly mixedTpotMs: number
  /** Time saved over mixed batches: 0.09 is 9 %. */
  readonly gain: number
}

export function meanStep({
  tokens,
  batch,
  active,
  ms,
  mixedActive,
  mixedMs,
}: DecodeWork): MeanStep | undefined {
  if (tokens === 0) return undefined
  return {
    batch: batch / tokens,
    active: active / tokens,
    tpotMs: ms / tokens,
    mixedActive: mixedActive / tokens,
    mixedTpotMs: mixedMs / tokens,
    gain: 1 - ms / mixedMs,
  }
}

/**
 * Totals per policy. Requests stay where the previous policy put them, so the first seconds of a new policy
 * count for neither.
 */
export class PolicyLedger {
  readonly #settleSeconds: number
  readonly #work = new Map<string, DecodeWork>()
  #policy: string | undefined
  #settling = 0

  /** `settleSeconds`: how long requests of the previous policy keep running. */
  constructor(settleSeconds: number) {
    this.#settleSeconds = settleSeconds
  }

  add({ policy }: Pick<Observation, 'policy'>, work: DecodeWork): void {
    if (policy === undefined) return
    if (policy !== this.#policy) {
      this.#settling = this.#policy === undefined ? 0 : this.#settleSeconds
      this.#policy = policy
    }
    if (this.#settling > 0) {
      this.#settling -= work.seconds
      return
    }
    const before = this.#work.get(policy) ?? NO_WORK
    this.#work.set(policy, sumOf([before, work], before.seconds + work.seconds))
  }

  /** In order of first use. */
  entries(): readonly (readonly [policy: string, work: DecodeWork])[] {
    return [...this.#work]
  }
}
