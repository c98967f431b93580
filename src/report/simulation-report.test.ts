import { describe, expect, it } from 'vitest'
import { sourcesFixture, sweepFixture, type SweepShape } from '../../test/browser/simulation-fixture.ts'
import { brokenNumbers, parse } from '../../test/browser/well-formed.ts'
import type { SimulationResult } from '../sim/result.ts'
import type { Exhibit, ExhibitReport } from './exhibit.ts'
import { exhibitMarkdown } from './exhibit-markdown.ts'
import { exhibitPage } from './exhibit-page.ts'
import { simulationReport } from './simulation-report.ts'
import type { Simulated } from './simulation-tables.ts'

function reportOf(
  shape: Partial<SweepShape> = {},
  change: (simulated: Simulated) => Simulated = same => same,
): ExhibitReport {
  const report = simulationReport(change(sweepFixture(shape)), sourcesFixture, '0.1.0')
  expect(brokenNumbers(parse(exhibitPage(report, '0.1.0')))).toEqual([])
  return report
}
const exhibitsOf = ({ sections }: ExhibitReport) =>
  new Map(sections.flatMap(({ exhibits }) => exhibits.map(one => [one.id, one] as const)))
const idsOf = (report: ExhibitReport) => [...exhibitsOf(report).keys()]
const chartOf = (exhibit: Exhibit | undefined, nth = 0) => exhibit!.charts[nth]!
const withRuns = (
  simulated: Simulated,
  change: (run: SimulationResult) => Partial<SimulationResult>,
): Simulated => ({
  ...simulated,
  points: simulated.points.map(point => ({
    ...point,
    runs: point.runs.map(run => ({ ...run, ...change(run) })),
  })),
})

describe('the report of a simulation', () => {
  it('names its sources', () => {
    const report = reportOf({ slo: { ttftMs: 500, tpotMs: 20 } })
    expect(report.title).toBe('jsq, eldr, union on 8P16D at 200 to 600 requests per second')
    expect(report.intro).toContain(
      'union changes TPOT p50 by −14.0\u00a0±\u00a00.1\u00a0% at 600 requests per second, against jsq.',
    )
    const facts = new Map(report.facts.map(({ term, value }) => [term, value]))
    expect(Object.fromEntries(facts)).toMatchObject({
      trace: 'data/synthetic.evaluation.safetensors (sha256 8b93874a3145c5c6…)',
      artifact: 'synthetic.artifact.safetensors (sha256 c5c68b93874a3145…)',
      model:
        'synthetic: 16 layers × 128 experts, top-8, scaled to the profile’s 48 layers × 128 experts, top-8',
      'cost profile': 'h200-first: First step cost',
      topology: '8P16D, 24 GPUs, prefill by prefix_hash',
      requests: '4,000 per run, trace rows drawn by passes',
      arrivals: 'poisson',
      seeds: '3',
      SLO: 'TTFT ≤ 500 ms, TPOT ≤ 20 ms',
      'simulated by': 'eldr 0.1.0',
    })
  })

  it('draws lines with confidence bands by rate', () => {
    const chart = chartOf(exhibitsOf(reportOf({ rates: [600, 200] })).get('tpot-p50'))
    expect(chart.kind).toBe('lines')
    const series = chart.kind === 'lines' ? chart.series : []
    expect(series.map(({ label }) => label)).toEqual(['jsq', 'eldr', 'union'])
    expect(series[0]!.points.map(({ x }) => x)).toEqual([200, 600])
    const { y, low, high } = series[0]!.points[0]!
    expect([low! < y, y < high!]).toEqual([true, true])
  })

  it('draws bars for a single rate, and no interval for a single seed', () => {
    const chart = chartOf(exhibitsOf(reportOf({ rates: [400], seeds: 1 })).get('tpot-p99'))
    expect(chart.kind === 'bars' && chart.groups).toEqual([
      {
        bars: ['jsq', 'eldr', 'union'].map((label, nth) => ({
          label,
          value: 13 * (1 - 0.07 * nth) * 1.4,
          digits: 2,
          unit: 'ms',
        })),
      },
    ])
  })

  it('names the best and worst policy unless intervals overlap or all are equal', () => {
    const report = exhibitsOf(reportOf())
    expect(report.get('tpot-p50')!.finding).toBe(
      'At 600 requests per second union has the lowest TPOT p50 (14.67\u00a0ms), jsq the highest (17.05\u00a0ms).',
    )
    expect(report.get('ttft')!.finding).toContain('every policy has TTFT p50 18.0\u00a0ms.')
    const noisy = reportOf({}, simulated =>
      withRuns(simulated, ({ seed, tpotMs }) => ({ tpotMs: { ...tpotMs, p50: tpotMs.p50 + seed * 3 } })),
    )
    expect(exhibitsOf(noisy).get('tpot-p50')!.finding).toContain(
      'the confidence intervals of the policies overlap',
    )
  })

  it('draws identical policies as one line', () => {
    const chart = chartOf(exhibitsOf(reportOf()).get('ttft'))
    expect(chart.kind === 'lines' && chart.series.map(({ label }) => label)).toEqual(['every policy'])
  })

  it('compares with the best load balancer for each measure and rate', () => {
    const chart = chartOf(
      exhibitsOf(reportOf({ policies: ['jsq', 'random', 'union'], rates: [200, 400] })).get('gain'),
    )
    expect(
      chart.kind === 'bars' &&
        chart.groups.map(({ heading, bars }) => [heading, ...bars.map(({ label }) => label)]),
    ).toEqual([
      ['200 requests per second, against random', 'jsq', 'union'],
      ['400 requests per second, against random', 'jsq', 'union'],
    ])
    const slower = exhibitsOf(reportOf({ policies: ['eldr', 'jsq'] })).get('gain')!
    expect(slower.finding).toContain('No policy has a lower TPOT p50 than the best load balancer.')
  })

  it('merges active experts over seeds and rates, without rare batch sizes', () => {
    const chart = chartOf(exhibitsOf(reportOf({ rates: [200, 400] })).get('experts'))
    const [first] = chart.kind === 'lines' ? chart.series : []
    expect(first!.points).toHaveLength(30)
    expect(first!.points[0]!.y).toBeCloseTo(128 * 0.06)
    const rare = reportOf({}, simulated =>
      withRuns(simulated, () => ({
        activeByBatch: [
          { batch: 3, steps: 10_000, active: 20 },
          { batch: 4, steps: 3, active: 90 },
        ],
      })),
    )
    const lines = chartOf(exhibitsOf(rare).get('experts'))
    expect(lines.kind === 'lines' && lines.series[0]!.points).toEqual([{ x: 3, y: 20 }])
    expect(exhibitsOf(rare).get('experts')!.finding).toBe(
      'In a step of 3 requests: jsq 20.0, eldr 20.0, union 20.0.',
    )
  })

  it('has a table of reasons for policies with several', () => {
    const { tables, source, finding } = exhibitsOf(reportOf({ rates: [200] })).get('reasons')!
    expect(tables[0]!.columns).toEqual(['policy', 'requests/s', 'band_hit', 'band_spill'])
    expect(tables[0]!.rows.map(([policy]) => policy)).toEqual(['eldr'])
    expect(finding).toContain('eldr: band_hit 83\u00a0%, band_spill 17\u00a0%')
    expect(source).toContain('jsq: least_loaded, union: least_cost')
    expect(exhibitsOf(reportOf({ policies: ['jsq'] })).get('reasons')!.tables).toEqual([])
  })

  it('has TTFT, goodput, ranks and gains if the study has them', () => {
    expect(idsOf(reportOf())).toEqual([
      'tpot-p50',
      'tpot-p99',
      'gain',
      'experts',
      'imbalance',
      'reasons',
      'ttft',
      'tokens',
      'cost',
      'numbers',
    ])
    const bare = reportOf({ topology: '16D', policies: ['eldr'], slo: { tpotMs: 9 } })
    expect(idsOf(bare)).toEqual([
      'tpot-p50',
      'tpot-p99',
      'experts',
      'imbalance',
      'reasons',
      'goodput',
      'cost',
      'numbers',
    ])
    expect(exhibitsOf(reportOf({ topology: '2P8D×EP4' })).get('experts')!.charts).toHaveLength(2)
  })

  it('keeps shares within 0 and 100 %', () => {
    const goodput = (run: SimulationResult) => ({ share: run.seed === 0 ? 0.1 : 1, requestsPerSecond: 1 })
    const report = reportOf({ slo: { tpotMs: 9 }, rates: [200] }, simulated =>
      withRuns(simulated, run => ({ goodput: goodput(run) })),
    )
    const chart = chartOf(exhibitsOf(report).get('goodput'))
    const [bar] = chart.kind === 'bars' ? chart.groups[0]!.bars : []
    expect([bar!.low, bar!.high]).toEqual([0, 100])
  })

  it('has every measure in its last tables, including cost and tail', () => {
    const [latency, load] = exhibitsOf(reportOf({ slo: { tpotMs: 9 } })).get('numbers')!.tables
    expect(latency!.columns).toEqual([
      'policy',
      'requests/s',
      'TPOT p50 (ms)',
      'TPOT p90 (ms)',
      'TPOT p99 (ms)',
      'ITL p50 (ms)',
      'ITL p99 (ms)',
      'TTFT p50 (ms)',
      'TTFT p99 (ms)',
    ])
    expect(load!.columns).toEqual([
      'policy',
      'requests/s',
      'experts',
      'batch',
      'imbalance',
      'tokens/s',
      '$/M tokens',
      'goodput (%)',
    ])
    expect(load!.rows).toHaveLength(9)
    // 24 GPUs at $2.5 an hour for 9,600 tokens per second
    expect(load!.rows[0]![6]).toMatchObject({ value: ((24 * 2.5) / 3600 / 9600) * 1e6, digits: 3 })
  })

  it('is deterministic, in its texts too', () => {
    expect(exhibitMarkdown(reportOf())).toBe(exhibitMarkdown(reportOf()))
  })

  it('leaves out numbers that are not finite', () => {
    const wrong = { count: 0, mean: NaN, p50: NaN, p90: NaN, p99: Infinity }
    const broken = reportOf({ slo: { ttftMs: 1 } }, simulated =>
      withRuns(simulated, () => ({
        tpotMs: wrong,
        itlMs: wrong,
        ttftMs: wrong,
        activeByBatch: [],
        reasons: {},
        tokensPerSecond: 0,
        goodput: { share: NaN, requestsPerSecond: NaN },
      })),
    )
    expect(exhibitMarkdown(broken)).not.toMatch(/NaN|Infinity|undefined/)
    expect(exhibitsOf(broken).get('tpot-p50')!.finding).toContain('no measurement')
  })
})
