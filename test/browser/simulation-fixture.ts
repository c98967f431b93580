import type { Simulated } from '../../src/report/simulation-tables.ts'
import type { SimulationSources } from '../../src/report/simulation-report.ts'
import type { SimulationResult } from '../../src/sim/result.ts'
import { parseTopology, topologyText } from '../../src/sim/topology.ts'

export interface SweepShape {
  readonly policies: readonly string[]
  readonly rates: readonly number[]
  readonly seeds: number
  readonly topology: string
  readonly slo: Simulated['study']['slo']
}

const REASONS: Readonly<Record<string, SimulationResult['reasons']>> = {
  eldr: { band_spill: 17, band_hit: 83 },
  union: { least_cost: 100 },
}

/** A synthetic sweep of any shape; deterministic. Later policies are faster and less even. */
export function sweepFixture(shape: Partial<SweepShape> = {}): Simulated {
  const { policies, rates, seeds, topology, slo }: SweepShape = {
    policies: ['jsq', 'eldr', 'union'],
    rates: [200, 400, 600],
    seeds: 3,
    topology: '8P16D',
    slo: undefined,
    ...shape,
  }
  const cells = policies.flatMap((variant, nth) => rates.map(rate => ({ variant, rate, nth })))
  return {
    points: cells.map(({ variant, rate, nth }) => ({
      variant,
      rate,
      runs: Array.from({ length: seeds }, (_, seed) => runOf(variant, nth, rate, seed, topology)),
    })),
    study: {
      trace: 'data/synthetic.evaluation.safetensors',
      artifact: 'synthetic.artifact.safetensors',
      profile: 'h200-first',
      topology,
      requests: 4000,
      arrivals: 'poisson',
      rows: 'passes',
      ...(slo && { slo }),
    },
    seeds,
    pricePerGpuHour: 2.5,
  }
}

function runOf(policy: string, nth: number, rate: number, seed: number, text: string): SimulationResult {
  const topology = parseTopology(text)
  const ms = (p50: number) => ({ count: 3000, mean: p50, p50, p90: p50 * 1.2, p99: p50 * 1.4 })
  const tpot = (5 + rate * 0.02) * (1 - 0.07 * nth) + 0.05 * seed
  return {
    policy,
    prefillPolicy: topology.prefill > 0 ? 'prefix_hash' : null,
    topology: topologyText(topology),
    profile: 'h200-first',
    seed,
    requests: 3000,
    allRequests: 4000,
    spanSeconds: 3000 / rate,
    ttftMs: topology.prefill > 0 ? ms(12 + rate / 100) : null,
    tpotMs: ms(tpot),
    itlMs: ms(tpot * 0.98),
    latencyMs: ms(tpot * 60),
    activeExperts: 80 - 6 * nth,
    fullestRankExperts: (80 - 6 * nth) / topology.ranks,
    activeByBatch: Array.from({ length: 30 }, (_, i) => ({
      batch: i + 1,
      steps: 400 - 10 * i,
      active: (128 - 8 * nth) * (1 - 0.94 ** (i + 1)),
    })),
    batch: rate / 25,
    inflight: rate / 2,
    imbalance: { inflight: 1.05 + 0.1 * nth, tokens: 1.02 + 0.1 * nth },
    tokensPerSecond: rate * 48 + nth,
    requestsPerSecond: rate,
    goodput: { share: 0.9 + 0.02 * nth, requestsPerSecond: rate * 0.9 },
    reasons: REASONS[policy] ?? { least_loaded: 100 },
    preemptions: 0,
    prefixHitShare: topology.prefill > 0 ? 0 : null,
  }
}

export const sourcesFixture: SimulationSources = {
  trace: {
    file: 'data/synthetic.evaluation.safetensors',
    sha256: '8b93874a3145c5c6'.repeat(4),
    model: 'synthetic',
    shape: { layers: 16, experts: 128, topK: 8 },
  },
  artifact: { file: 'synthetic.artifact.safetensors', sha256: 'c5c68b93874a3145'.repeat(4) },
  profile: { name: 'h200-first', what: 'First step cost', shape: { layers: 48, experts: 128, topK: 8 } },
}
