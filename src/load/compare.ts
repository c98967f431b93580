/** Compares two results: the ratio of each number, and every difference in the setup of the runs. */
import type { BenchResult } from './result.ts'

export interface Ratio {
  readonly name: string
  readonly unit: string
  /** null if the run lacks this number. */
  readonly a: number | null
  readonly b: number | null
  /** b / a. */
  readonly ratio: number | null
}

export interface Difference {
  /** Such as `setup.load.rate`. */
  readonly key: string
  readonly a: string
  readonly b: string
}

export interface Comparison {
  readonly ratios: readonly Ratio[]
  readonly differences: readonly Difference[]
  /** Reasons to distrust the ratios. */
  readonly cautions: readonly string[]
}

const TIMES = { TTFT: 'ttftMs', TPOT: 'tpotMs', ITL: 'itlMs', 'end to end': 'e2eMs' } as const
const POINTS = ['mean', 'p50', 'p90', 'p99'] as const
/** Requests needed for a reliable p99: ten of them lie above it. */
const ENOUGH_FOR_P99 = 1_000

export function compare(a: BenchResult, b: BenchResult): Comparison {
  const times = Object.entries(TIMES).flatMap(([name, key]) =>
    POINTS.map(point => ratio(`${name} ${point}`, 'ms', a[key][point], b[key][point])),
  )
  const { throughput: ta, goodput: ga } = a
  const { throughput: tb, goodput: gb } = b
  const ratios = [
    ...times,
    ratio('requests/s', '', ta.requestsPerSecond, tb.requestsPerSecond),
    ratio('output tokens/s', '', ta.outputTokensPerSecond, tb.outputTokensPerSecond),
    ...(ga && gb ? [ratio('goodput', '%', 100 * ga.share, 100 * gb.share)] : []),
    ratio('failed', 'requests', a.requests.failed, b.requests.failed),
  ]
  return { ratios, differences: differencesOf(a, b), cautions: cautionsOf(a, b) }
}

function ratio(name: string, unit: string, a: number | null, b: number | null): Ratio {
  return { name, unit, a, b, ratio: a === null || b === null || a === 0 ? null : b / a }
}

/** Differences in setup and environment, not in measurements. */
function differencesOf(a: BenchResult, b: BenchResult): Difference[] {
  const setupOf = ({ version, setup, machine, tokens, client, goodput }: BenchResult) =>
    flat({
      version,
      setup,
      machine,
      tokensFrom: tokens.from,
      isOpenLoop: client.isOpenLoop,
      slo: goodput?.slo ?? {},
    })
  const [left, right] = [setupOf(a), setupOf(b)]
  const keys = [...new Set([...left.keys(), ...right.keys()])]
  return keys
    .filter(key => left.get(key) !== right.get(key))
    .map(key => ({ key, a: left.get(key) ?? 'none', b: right.get(key) ?? 'none' }))
}

/** Leaf values by their path. */
function flat(value: object, path = ''): Map<string, string> {
  const leaves = new Map<string, string>()
  for (const [key, inner] of Object.entries(value) as [string, unknown][]) {
    const name = path === '' ? key : `${path}.${key}`
    if (typeof inner === 'object' && inner !== null)
      for (const [deeper, leaf] of flat(inner, name)) leaves.set(deeper, leaf)
    else leaves.set(name, String(inner))
  }
  return leaves
}

function cautionsOf(a: BenchResult, b: BenchResult): string[] {
  const cautions: string[] = []
  for (const [name, run] of [
    ['A', a],
    ['B', b],
  ] as const) {
    if (!run.client.keptUp)
      cautions.push(`the client of ${name} could not keep up: its numbers are partly its own`)
    if (run.requests.failed > 0)
      cautions.push(
        `${run.requests.failed} of ${run.requests.counted} requests of ${name} failed and have no times`,
      )
    if (run.requests.ok < ENOUGH_FOR_P99)
      cautions.push(`${run.requests.ok} requests of ${name} are few for a p99`)
  }
  if (a.client.isOpenLoop !== b.client.isOpenLoop)
    cautions.push('one run counts from planned moments, the other from sending')
  return cautions
}
