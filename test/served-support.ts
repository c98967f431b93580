/** Synthetic results of bench/gpu/serving, to test what is made of them. No number here was measured. */
import { createRandom } from '../src/math/random.ts'
import type { ServedSteps } from '../src/served/result-file.ts'

export const CONDITIONS = {
  date: '2026-01-02T03:04:05Z',
  commit: '0123456789abcdef0123456789abcdef01234567',
  modified: false,
  gpu: { name: 'NVIDIA H200', memoryGib: 139.8, driver: '1.2.3' },
  host: { cpu: 'Some CPU', cores: 16 },
  versions: { vllm: '0.26.0', torch: '2.11.0+cu130', python: '3.12.3' },
  mps: true,
}

export const MODEL = {
  name: 'tiny6-wide',
  layers: 6,
  experts: 64,
  topK: 8,
  hidden: 3072,
  expertWidth: 2560,
  bytesPerExpert: 47_185_920,
  dtype: 'bfloat16',
  weights: 'widened',
}

export function envelope(kind: string, name: string, change: object = {}): Record<string, unknown> {
  return {
    format: 'eldr.gpu-serving.v1',
    kind,
    name,
    status: 'ok',
    conditions: CONDITIONS,
    model: MODEL,
    ...change,
  }
}

/** Microseconds of a step. */
export type StepModel = (batch: number, experts: number, contextTokens: number) => number

/** Steps of batches 1 to 48 with some spread of experts, timed by the model times a factor. */
export function stepsOf(
  model: StepModel,
  { count = 3_000, noise = 0, seed = 1 } = {},
): Required<Pick<ServedSteps, 'ms' | 'batch' | 'experts' | 'contextTokens'>> {
  const random = createRandom(seed)
  const columns = {
    ms: [] as number[],
    batch: [] as number[],
    experts: [] as number[],
    contextTokens: [] as number[],
  }
  for (let i = 0; i < count; i++) {
    const batch = 1 + random.below(48)
    const experts = Math.min(64, 64 * (1 - Math.exp(-batch / 12)) * (0.85 + 0.3 * random.uniform()) + 6)
    const contextTokens = batch * (100 + random.below(300))
    columns.batch.push(batch)
    columns.experts.push(experts)
    columns.contextTokens.push(contextTokens)
    columns.ms.push((model(batch, experts, contextTokens) * (1 + noise * (random.uniform() - 0.5))) / 1000)
  }
  return columns
}

export function quantilesAt(p50: number, p99 = 1.05 * p50) {
  return { count: 300, mean: p50, p50, p90: (p50 + p99) / 2, p99 }
}

/** A run whose TPOT is `tpot` and whose steps have `experts` experts. */
export function runOf(policy: string, round: number, tpot: number, experts: number) {
  return {
    policy,
    round,
    seed: 11 + round,
    tpotMs: quantilesAt(tpot),
    itlMs: quantilesAt(tpot, 2 * tpot),
    ttftMs: quantilesAt(100),
    requests: { sent: 400, counted: 300, ok: 300, failed: 0 },
    client: { keptUp: true },
    together: { steps: 8000, batch: 10, experts },
    byBatch: { batch: [8, 10], steps: [50, 60], experts: [0.9 * experts, experts] },
  }
}

/** Three rounds in which eldr takes 10 % less than jsq, give or take 1 %. */
export function servedResult(change: object = {}): Record<string, unknown> {
  const runs = [0, 1, 2].flatMap(round => [
    runOf('jsq', round, 13 + round, 42),
    runOf('eldr', round, (13 + round) * (0.89 + 0.01 * round), 38),
  ])
  return envelope('served', 'served-k4-b10', {
    served: { decoders: 4, rate: 17, targetBatch: 10, outputTokens: [192, 256], runs, ...change },
  })
}

/** What `eldr simulate --json` would have predicted: `change` for eldr against jsq. */
export function predictionOf(change: number): Record<string, unknown> {
  const run = (seed: number, tpot: number, active: number) => ({
    seed,
    tpotMs: quantilesAt(tpot),
    itlMs: quantilesAt(tpot),
    batch: 11,
    activeByBatch: [
      { batch: 8, steps: 1, active: active - 3 },
      { batch: 12, steps: 3, active: active + 1 },
    ],
  })
  return {
    topology: '1P4D/4',
    profile: 'served.json',
    points: [
      { variant: 'jsq', rate: 17, runs: [0, 1, 2].map(seed => run(11 + seed, 13, 42)) },
      { variant: 'eldr', rate: 17, runs: [0, 1, 2].map(seed => run(11 + seed, 13 * (1 + change), 38)) },
    ],
  }
}
