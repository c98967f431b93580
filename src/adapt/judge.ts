/**
 * Compares two artifacts on requests that neither was fitted on: both decide where the same requests go, with
 * the policy in force, and the cost of a decode step is summed over what the requests then share. Each pass
 * draws the requests again with replacement, so that the spread of the gains is the noise of the sample.
 */
import { createRandom, type Random } from '../math/random.ts'
import { createDecodePolicy } from '../policy/create-policy.ts'
import type { DecodePolicy, PolicyName, RoutableRequest } from '../policy/decode-policy.ts'
import type { UnionCost } from '../policy/step-cost.ts'
import { DEFAULT_COST } from '../policy/union.ts'
import type { Predictor } from '../policy/predictor.ts'
import type { Artifact } from '../fit/artifact.ts'
import { createUnionState, logsOf } from '../policy/union-state.ts'

/** One of the artifacts. `artifact` has its centroids in the order of the workers. */
export interface Contender {
  readonly artifact: Artifact
  readonly predictor: Predictor
}

export interface JudgeOptions {
  readonly policy: PolicyName
  readonly tau: number
  readonly cost?: UnionCost
  readonly workers: number
  readonly layers: number
  /** Requests in flight on all workers together. */
  readonly inflight: number
  readonly seed: number
}

/** Held-out requests with the chance that a step fires each cell, as reported or as their prompts suggest. */
export interface HeldOut {
  readonly requests: readonly RoutableRequest[]
  readonly chances: readonly Float32Array[]
}

export interface Gain {
  /** Share of the time of a decode step that the new artifact saves at the same arrivals. */
  readonly mean: number
  /** Half the width of its 95 % interval. */
  readonly half: number
}

/** Above its noise, and large enough. */
export function isWorthASwap({ mean, half }: Gain, minGain: number): boolean {
  return mean - half > 0 && mean >= minGain
}

const PASSES = 20
/** Arrivals of a pass that are measured, for each request in flight: nearly all requests are replaced. */
const TURNOVERS = 3
const MIN_MEASURED = 200
const Z = 1.96
/** Share of the load at which costs are compared to learn how they grow with it. */
const LIGHTER = 0.8
/** Near 1 a cluster is overloaded, and no load settles. */
const MAX_EXPONENT = 0.7

export function judge(before: Contender, after: Contender, heldOut: HeldOut, options: JudgeOptions): Gain {
  const logs = heldOut.chances.map(chances => logsOf(chances))
  const costOf = (contender: Contender, pass: number, inflight: number) =>
    costOfPass(
      contender,
      heldOut.requests,
      logs,
      { ...options, inflight },
      createRandom(options.seed).fork(pass),
    )
  const passes = Array.from({ length: PASSES }, (_, pass) => ({
    old: costOf(before, pass, options.inflight),
    fresh: costOf(after, pass, options.inflight),
    lighter: costOf(before, pass, Math.max(1, Math.round(LIGHTER * options.inflight))),
  }))
  const amplifier = amplifierOf(passes)
  const gains = passes.map(({ old, fresh }) => 1 - (fresh / old) ** amplifier)
  const mean = gains.reduce((a, b) => a + b, 0) / PASSES
  const variance = gains.reduce((sum, gain) => sum + (gain - mean) ** 2, 0) / (PASSES - 1)
  return { mean, half: Z * Math.sqrt(variance) }
}

/**
 * Requests keep arriving at the same rate, so with shorter steps fewer of them are in flight, which shortens
 * steps again. If a step's cost grows as load^e, a ratio r of costs at equal load settles at r^(1 / (1 − e)).
 */
function amplifierOf(passes: readonly { readonly old: number; readonly lighter: number }[]): number {
  const logs = passes.map(({ old, lighter }) => Math.log(lighter / old))
  const exponent = logs.reduce((a, b) => a + b, 0) / logs.length / Math.log(LIGHTER)
  return 1 / (1 - Math.min(MAX_EXPONENT, Math.max(0, exponent)))
}

interface Flying {
  readonly row: number
  readonly request: RoutableRequest
  readonly worker: number
}

/** Mean cost of a step over tokens. Random numbers do not depend on the decisions. */
function costOfPass(
  { artifact, predictor }: Contender,
  requests: readonly RoutableRequest[],
  logs: readonly Uint16Array[],
  { policy: name, tau, cost = DEFAULT_COST, workers, layers, inflight }: JudgeOptions,
  random: Random,
): number {
  const policy: DecodePolicy = createDecodePolicy(name, { workers, artifact, tau, cost, predictor })!
  const [draws, ends, ties] = [random.fork(0), random.fork(1), random.fork(2)]
  const state = createUnionState(workers, predictor.cells)
  const candidates = Array.from({ length: workers }, (_, worker) => ({ worker, inflight: 0 }))
  const context = { random: ties.uniform }
  const flying: Flying[] = []
  const measured = Math.max(MIN_MEASURED, TURNOVERS * inflight)
  let sum = 0
  for (let arrival = 0; arrival < 2 * inflight + measured; arrival++) {
    if (flying.length >= inflight) {
      const [{ row, request, worker }] = flying.splice(ends.below(flying.length), 1) as [Flying]
      policy.released?.(request, worker)
      state.add(worker, logs[row]!, -1)
      candidates[worker]!.inflight--
    }
    const row = draws.below(requests.length)
    const request = { ...requests[row]! } // policies tell requests apart by identity
    const { worker } = policy.pick(request, candidates, context)
    policy.dispatched?.(request, worker)
    state.add(worker, logs[row]!, 1)
    candidates[worker]!.inflight++
    flying.push({ row, request, worker })
    if (arrival < 2 * inflight) continue
    for (const { worker: each, inflight: load } of candidates)
      sum +=
        (load / flying.length) *
        (cost.base + (cost.perExpert * state.unionOf(each)) / layers + cost.perRequest * load)
  }
  return sum / measured
}
