import { bestBalancer, gainOf } from '../sim/compare.ts'
import type { SimulationResult } from '../sim/result.ts'
import type { StudyData } from '../sim/study.ts'
import { over, type SweepPoint } from '../sim/sweep.ts'
import { fixed, whole } from './numbers.ts'
import { type Column, table } from './table.ts'
import { printable, type Terminal, wrapped } from './terminal.ts'

const p50 = (run: SimulationResult) => run.tpotMs.p50
const p99 = (run: SimulationResult) => run.tpotMs.p99

/** The results of a sweep as a person reads them: a table for each rate, gains against the best load balancer of each column there. */
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
  const base = bestBalancer(points, p50)
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
    point.variant,
    `${fixed(over(point, p50).mean, 2)} ms`,
    ...(base ? [change(points, point, p50)] : []),
    `${fixed(over(point, p99).mean, 2)} ms`,
    ...(base ? [change(points, point, p99)] : []),
    fixed(over(point, run => run.activeExperts).mean, 1),
    fixed(over(point, run => run.batch).mean, 1),
    fixed(over(point, run => run.imbalance.inflight).mean, 2),
    ...(prefill ? [`${fixed(over(point, run => run.ttftMs!.p50).mean, 1)} ms`] : []),
    whole(over(point, run => run.tokensPerSecond).mean),
  ])
  const remark = base ? ` ${terminal.dim(`(gains against the best load balancer of the column, marked ·, paired by seed, ± 95 %)`)}` : ''
  return `${wrapped(`${terminal.bold(`${rate} requests a second`)}${remark}`, terminal.width)}\n${table(columns, rows, terminal)}`
}

function change(points: readonly SweepPoint[], point: SweepPoint, value: (run: SimulationResult) => number): string {
  const interval = gainOf(points, point, value)
  if (interval === undefined) return '·'
  const sign = interval.mean > 0 ? '+' : ''
  const half = Number.isFinite(interval.half) ? ` ± ${fixed(100 * interval.half, 1)}` : ''
  return `${sign}${fixed(100 * interval.mean, 1)}${half} %`
}
