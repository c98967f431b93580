import type { Interval } from '../sim/confidence.ts'
import type { SimulationResult } from '../sim/result.ts'
import type { StudyData } from '../sim/study.ts'
import { changeAgainst, over, type SweepPoint } from '../sim/sweep.ts'
import { fixed, whole } from './numbers.ts'
import { type Column, table } from './table.ts'
import { printable, type Terminal, wrapped } from './terminal.ts'

/** Policies that know nothing of experts: what a gain is measured against. */
const LOAD_BALANCERS = new Set(['random', 'round_robin', 'jsq', 'power_of_two'])

const p50 = (run: SimulationResult) => run.tpotMs.p50
const p99 = (run: SimulationResult) => run.tpotMs.p99

/** The results of a sweep as a person reads them: a table for each rate, gains against the best load balancer there. */
export function simulationTables(
  points: readonly SweepPoint[],
  study: StudyData,
  seeds: number,
  seconds: number,
  terminal: Terminal,
): string {
  const rates = [...new Set(points.map(({ rate }) => rate))]
  const tokens = points.flatMap(({ runs }) => runs).reduce((sum, run) => sum + run.tokensPerSecond * run.spanSeconds, 0)
  const source = `Simulated: ${study.topology}, profile ${study.profile}, trace ${printable(study.trace)}${study.artifact === undefined ? '' : `, artifact ${printable(study.artifact)}`}; ${whole(study.requests)} requests a run, ${study.arrivals} arrivals, ${seeds} ${seeds === 1 ? 'seed' : 'seeds'}.`
  return [
    wrapped(terminal.dim(source), terminal.width),
    ...rates.map(rate => rateTable(points.filter(point => point.rate === rate), rate, terminal)), // prettier-ignore
    terminal.dim(`${fixed(tokens / 1e6, 1)} million output tokens in ${fixed(seconds, 1)} s`),
  ].join('\n\n')
}

function rateTable(points: readonly SweepPoint[], rate: number, terminal: Terminal): string {
  const base = bestOf(points.filter(({ variant }) => LOAD_BALANCERS.has(variant)))
  const prefill = points[0]!.runs[0]!.ttftMs !== null
  const right = (title: string): Column => ({ title, align: 'right' })
  const columns = [
    { title: 'policy' },
    right('TPOT p50'),
    ...(base ? [right('gain')] : []),
    right('TPOT p99'),
    ...(base ? [right('gain')] : []),
    right('active experts'),
    right('batch'),
    right('imbalance'),
    ...(prefill ? [right('TTFT p50')] : []),
    right('tokens/s'),
  ]
  const rows = points.map(point => [
    point === base ? `${point.variant} ·` : point.variant,
    `${fixed(over(point, p50).mean, 2)} ms`,
    ...(base ? [change(base, point, p50)] : []),
    `${fixed(over(point, p99).mean, 2)} ms`,
    ...(base ? [change(base, point, p99)] : []),
    fixed(over(point, run => run.activeExperts).mean, 1),
    fixed(over(point, run => run.batch).mean, 1),
    fixed(over(point, run => run.imbalance.inflight).mean, 2),
    ...(prefill ? [`${fixed(over(point, run => run.ttftMs!.p50).mean, 1)} ms`] : []),
    whole(over(point, run => run.tokensPerSecond).mean),
  ])
  const remark = base ? ` ${terminal.dim(`(gains against ${base.variant}, the best load balancer by p50, paired by seed, ± 95 %)`)}` : ''
  return `${wrapped(`${terminal.bold(`${rate} requests a second`)}${remark}`, terminal.width)}\n${table(columns, rows, terminal)}`
}

function bestOf(points: readonly SweepPoint[]): SweepPoint | undefined {
  const mean = (point: SweepPoint) => over(point, p50).mean
  return points.reduce<SweepPoint | undefined>((best, point) => (best === undefined || mean(point) < mean(best) ? point : best), undefined)
}

function change(base: SweepPoint, point: SweepPoint, value: (run: SimulationResult) => number): string {
  if (point === base) return ''
  const interval: Interval = changeAgainst(base, point, value)
  const sign = interval.mean > 0 ? '+' : ''
  const half = Number.isFinite(interval.half) ? ` ± ${fixed(100 * interval.half, 1)}` : ''
  return `${sign}${fixed(100 * interval.mean, 1)}${half} %`
}
