/** What decode workers did between two observations, and what each policy has come to so far. */
import type { MixedBatch } from './mixed-batch.ts'
import type { Observation, ObservedWorker } from './observe.ts'

/** Sums over tokens, so that parts add up; all are 0 where nothing was decoded. Times are those of the model: the clock's, times the speed. */
export interface DecodeWork {
  readonly seconds: number
  readonly tokens: number
  /** Σ over tokens of the batch, the active experts and the time of their step; and of those of mixed batches at the same rate of tokens. */
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

/** Of one worker; `seconds` by the clock. */
export function workBetween(
  before: ObservedWorker,
  after: ObservedWorker,
  seconds: number,
  mixed: MixedBatch,
  speed: number,
): DecodeWork {
  const [from, to] = [before.own?.stats, after.own?.stats]
  // Another process has counters of its own.
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

/** What a token met on average. */
export interface MeanStep {
  readonly batch: number
  readonly active: number
  readonly tpotMs: number
  /** If batches were mixed at random, at the same rate of tokens. */
  readonly mixedActive: number
  readonly mixedTpotMs: number
  /** How much less time than mixed batches: 0.09 is 9 %. */
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

/** Keeps what was done under each policy. Requests stay where the policy before put them, so the first moments of a new one are nobody's. */
export class PolicyLedger {
  readonly #settleSeconds: number
  readonly #work = new Map<string, DecodeWork>()
  #policy: string | undefined
  #settling = 0

  /** `settleSeconds`: how long requests of the policy before are still there. */
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

  /** In the order in which they were first used. */
  entries(): readonly (readonly [policy: string, work: DecodeWork])[] {
    return [...this.#work]
  }
}
