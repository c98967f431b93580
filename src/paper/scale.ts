/** Other clusters: Fig. 18 (decoders with four expert-parallel GPUs) and Table 2 (8, 16 and 24 decoders). */
import type { Exhibit, ExhibitTable } from '../report/exhibit.ts'
import { bestBalancer } from '../sim/compare.ts'
import { changeAgainst, over } from '../sim/sweep.ts'
import {
  batchOf,
  type Cell,
  meanChange,
  type Point,
  type Setting,
  type Simulated,
  tpotP50,
  tpotP99,
  type Value,
} from './cells.ts'
import { type Context, simulatedFrom } from './context.ts'
import { BATCHES, EP_TOPOLOGY, expertParallel, served, TOPOLOGY } from './loads.ts'
import { duplicatesWarning } from './main-results.ts'
import { fixed } from './rounded.ts'
import { change, listed, mean, number, range, signedPercent, span } from './words.ts'

/** Loads of the expert-parallel cluster. */
export const EP_BATCHES = [10, 20, 35] as const

/** Policy, expert placement, and a label for both. Linear is the engine's default. */
const EP_VARIANTS = [
  { variant: 'round_robin', placement: 'linear', label: 'round_robin, linear' },
  { variant: 'jsq', placement: 'linear', label: 'jsq, linear' },
  { variant: 'jsq', placement: 'global', label: 'jsq, one placement for all' },
  { variant: 'band', placement: 'linear', label: 'band, linear' },
  { variant: 'band', placement: 'cluster', label: 'band, placement by cluster' },
  { variant: 'union', placement: 'linear', label: 'union, linear' },
  { variant: 'union', placement: 'global', label: 'union, one placement for all' },
] as const

export function expertParallelism(context: Context): Simulated<Exhibit> {
  const lang = context.workloads[1]
  const loads = EP_BATCHES.map(batch => {
    const rate = context.rateOf(expertParallel(lang), batch)
    const cells = EP_VARIANTS.map(({ variant, placement }): Cell => ({
      variant,
      rate,
      setting: { ...expertParallel(lang), placement },
    }))
    return { batch, rate, cells }
  })
  return {
    cells: loads.flatMap(({ cells }) => cells),
    make: of => {
      const seen = loads.map(load => ({ ...load, points: load.cells.map(of) }))
      /** Load balancers with the default placement: the first two variants. */
      const against = (points: readonly Point[], value: Value) => bestBalancer(points.slice(0, 2), value)!
      const gains = (at: number, value: Value) =>
        seen.map(({ points }) => changeAgainst(against(points, value), points[at]!, value).mean)
      const says = (at: number) =>
        `${EP_VARIANTS[at]!.label} ${span(gains(at, tpotP50))} / ${span(gains(at, tpotP99))}`
      const fullest = (at: number) =>
        range(
          seen.map(({ points }) => over(points[at]!, run => run.fullestRankExperts).mean),
          1,
        )
      return {
        id: 'fig-18',
        title: 'Fig. 18: expert-parallel decoders',
        finding: `TPOT p50 / p99 against the best load balancer with linear placement, at mean batches of ${range(
          seen.map(({ points }) => over(points[1]!, batchOf).mean),
          0,
        )}: ${[2, 3, 4, 5, 6].map(says).join('; ')}. The fullest of four ranks loads ${fullest(1)} experts per layer under jsq and ${fullest(4)} under band with placement by cluster.`,
        paper: {
          finding:
            'With placement by cluster, ELDR lowers the median by 2.7 to 4.3 % and p99 by 0.6 to 2.0 % at every rate (Qwen3-235B-A22B, language).',
          differs:
            'Our step time is that of a smaller model on one GPU, with its experts spread over four simulated ranks. Communication between ranks is assumed to cost nothing, so each expert saved counts for more.',
        },
        source: `${simulatedFrom(context, [lang], { profile: context.measured, topology: EP_TOPOLOGY, artifact: '8 clusters' })} Experts are placed for batches of 32.`,
        tables: seen.map(({ batch, rate, points }): ExhibitTable => ({
          title: `${rate} requests per second: batch ${fixed(over(points[1]!, batchOf).mean, 1)} under jsq (target ${batch})`,
          columns: [
            'policy, placement',
            'TPOT p50',
            'change',
            'TPOT p99',
            'change',
            'experts, all ranks',
            'fullest rank',
          ],
          rows: points.map((point, at) => [
            EP_VARIANTS[at]!.label,
            mean(over(point, tpotP50), 2, 'ms'),
            change(changeAgainst(against(points, tpotP50), point, tpotP50)),
            mean(over(point, tpotP99), 2, 'ms'),
            change(changeAgainst(against(points, tpotP99), point, tpotP99)),
            number(over(point, run => run.activeExperts).mean, 1),
            number(over(point, run => run.fullestRankExperts).mean, 1),
          ]),
        })),
        charts: [tpotP50, tpotP99].map((value, metric) => ({
          kind: 'lines',
          title: metric === 0 ? 'Median TPOT by rate' : 'p99 TPOT by rate',
          x: 'requests per second',
          y: 'ms',
          series: EP_VARIANTS.map(({ label }, at) => ({
            label,
            points: seen.map(({ rate, points }) => ({ x: rate, y: over(points[at]!, value).mean })),
          })),
        })),
      }
    },
  }
}

const DECODERS = [8, 16, 24] as const
const PAPER_P50 = ['−8.0 %', '−9.8 %', '−10.2 %']
const PAPER_P99 = ['−2.5 %', '−0.8 %', '−1.1 %']

export function decoderPools(context: Context): Simulated<Exhibit> {
  const lang = context.workloads[1]
  const main = served(lang)
  const pools = DECODERS.map(decoders => {
    const setting: Setting =
      decoders === 16
        ? main
        : { ...main, topology: `8P${decoders}D`, artifact: lang.artifacts.workers[decoders] }
    const rates = BATCHES.map(batch => Number(((context.rateOf(main, batch) * decoders) / 16).toPrecision(3)))
    const at = (variant: string) => rates.map((rate): Cell => ({ variant, rate, setting }))
    return { decoders, base: at('round_robin'), band: at('band'), union: at('union') }
  })
  return {
    cells: pools.flatMap(({ base, band, union }) => [...base, ...band, ...union]),
    make: of => {
      const changes = pools.map(({ decoders, base, band, union }) => {
        const against = (cells: readonly Cell[], value: Value) =>
          meanChange(
            cells.map((cell, at) => ({ base: of(base[at]!), point: of(cell) })),
            value,
          )
        const both = (cells: readonly Cell[]) => ({
          p50: against(cells, tpotP50),
          p99: against(cells, tpotP99),
        })
        return { decoders, band: both(band), union: both(union) }
      })
      const says = (policy: 'band' | 'union') =>
        listed(
          changes.map(({ decoders, [policy]: { p50 } }) => `${signedPercent(p50.mean)} (8P${decoders}D)`),
        )
      return {
        id: 'table-2',
        title: 'Table 2: decoder pools of 8, 16 and 24',
        finding: `Mean change of the median TPOT against round_robin: band ${says('band')}; union ${says('union')}.${duplicatesWarning(
          pools.flatMap(({ base }) => base.map(of)),
          lang,
        )}`,
        paper: {
          finding:
            'The larger the pool, the more the median falls: 8.0, 9.8 and 10.2 %; p99 falls by 2.5, 0.8 and 1.1 %.',
          differs:
            'Here rates grow with the pool, so decoders keep their batches. The paper keeps its rates, so larger pools have smaller batches.',
        },
        source: `${simulatedFrom(context, [lang], { topology: `8P8D, ${TOPOLOGY} and 8P24D`, artifact: 'as many clusters as decoders' })} Mean over four rates, proportional to the number of decoders.`,
        tables: [
          {
            columns: ['TPOT against round_robin', ...DECODERS.map(decoders => `8P${decoders}D`)],
            rows: [
              ['band, p50', ...changes.map(({ band }) => change(band.p50))],
              ['paper, p50', ...PAPER_P50],
              ['band, p99', ...changes.map(({ band }) => change(band.p99))],
              ['paper, p99', ...PAPER_P99],
              ['union, p50', ...changes.map(({ union }) => change(union.p50))],
              ['union, p99', ...changes.map(({ union }) => change(union.p99))],
            ],
          },
        ],
        charts: [],
      }
    },
  }
}
