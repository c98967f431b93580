import { bestBalancer, gainOf } from '../sim/compare.ts'
import type { StudyData } from '../sim/study.ts'
import { isOverloaded } from '../sim/overload.ts'
import { over, type SweepPoint } from '../sim/sweep.ts'
import type { Cell } from './exhibit.ts'
import { cellText } from './exhibit-cells.ts'
import { fixed, many, whole } from './numbers.ts'
import {
  BATCH,
  changeText,
  costMeasure,
  EXPERTS,
  FULLEST,
  GOODPUT,
  IMBALANCE,
  measured,
  type Measure,
  rateText,
  reasonShares,
  reasonsInWords,
  TOKENS,
  TPOT,
  TTFT,
} from './simulation-measures.ts'
import { table } from './table.ts'
import { printable, type Terminal, wrapped } from './terminal.ts'

/** A sweep and its settings. */
export interface Simulated {
  readonly points: readonly SweepPoint[]
  readonly study: StudyData
  readonly seeds: number
  readonly pricePerGpuHour: number
}

export interface TableOptions {
  readonly seconds: number
  /** Show the cost column. */
  readonly withCost: boolean
}

/** Wider tables are hard to read; reports and JSON have every number. */
const MAX_COLUMNS = 120

/**
 * The results of a sweep as terminal tables, one per rate, with gains against the best load balancer of each
 * column.
 */
export function simulationTables(
  simulated: Simulated,
  { seconds, withCost }: TableOptions,
  terminal: Terminal,
): string {
  const { points } = simulated
  const rates = [...new Set(points.map(({ rate }) => rate))]
  const runs = points.flatMap(point => point.runs)
  const tokens = runs.reduce((sum, run) => sum + run.tokensPerSecond * run.spanSeconds, 0)
  const narrow = { ...terminal, width: Math.min(terminal.width, MAX_COLUMNS) }
  return [
    wrapped(terminal.dim(`Simulated: ${printable(studyInWords(simulated))}`), narrow.width),
    ...rates.map(rate =>
      rateTable(
        points.filter(point => point.rate === rate),
        rate,
        simulated,
        withCost,
        narrow,
      ),
    ),
    terminal.dim(`${fixed(tokens / 1e6, 1)} million output tokens in ${fixed(seconds, 1)} s`),
  ].join('\n\n')
}

/** Topology, files, requests, arrivals and seeds in a sentence. */
export function studyInWords({ points, study, seeds }: Simulated): string {
  const { topology, profile, trace, artifact, workload, load, placement, prefillPolicy } = study
  const lengths =
    workload === undefined ? `${study.arrivals} arrivals` : `arrivals and lengths of ${workload.file}`
  const requests = points[0]?.runs[0]?.allRequests ?? study.requests
  return [
    `${topology}${placement === undefined ? '' : `, ${placement} placement`}${prefillPolicy === undefined ? '' : `, prefill by ${prefillPolicy}`}`,
    `profile ${profile}`,
    `trace ${trace}`,
    ...(artifact === undefined ? [] : [`artifact ${artifact}`]),
    load === undefined
      ? `${whole(requests)} requests per run, ${lengths}`
      : `${study.arrivals} arrivals for ${load.warmUpSeconds + load.seconds} s, requests of ${load.prompts.map(({ file }) => file).join(', ')}`,
    `${many(seeds, 'seed')}.`,
  ].join(', ')
}

interface TableColumn {
  readonly title: string
  readonly cells: readonly string[]
}

function rateTable(
  points: readonly SweepPoint[],
  rate: number,
  simulated: Simulated,
  withCost: boolean,
  terminal: Terminal,
): string {
  const { study, pricePerGpuHour } = simulated
  const run = points[0]!.runs[0]!
  const withSlo = study.slo !== undefined
  const column = (measure: Measure): TableColumn => ({
    title: measure.name,
    cells: points.map(point => text({ ...measured(point, measure), half: NaN })),
  })
  const gain = ({ of }: Measure): TableColumn[] => {
    if (bestBalancer(points, of) === undefined) return []
    const changes = points.map(point => gainOf(points, point, of))
    return [
      {
        title: 'gain',
        cells: changes.map(change => (change === undefined ? '·' : text(changeText(change)))),
      },
    ]
  }
  const columns = [
    column(TPOT.p50),
    ...gain(TPOT.p50),
    column(TPOT.p99),
    ...gain(TPOT.p99),
    ...(run.ttftMs === null ? [] : [column(TTFT.p50)]),
    ...(run.fullestRankExperts === run.activeExperts ? [column(EXPERTS)] : [column(FULLEST)]),
    // Requested columns replace those they are derived from.
    ...(withSlo && withCost ? [] : [column(BATCH)]),
    column(IMBALANCE),
    ...(withSlo || withCost ? [] : [column(TOKENS)]),
    ...(withSlo ? [column(GOODPUT)] : []),
    ...(withCost ? [column(costMeasure(pricePerGpuHour))] : []),
  ]
  const isSame = ({ cells }: TableColumn) => cells.length > 1 && cells.every(cell => cell === cells[0])
  const [shown, same] = [columns.filter(one => !isSame(one)), columns.filter(isSame)]
  const remark = shown.some(({ title }) => title === 'gain')
    ? ` ${terminal.dim('(gains against the best load balancer of the column, marked ·, paired by seed, ± 95 %)')}`
    : ''
  const rows = points.map(({ variant }, at) => [variant, ...shown.map(({ cells }) => cells[at]!)])
  const heads = [{ title: 'policy' }, ...shown.map(({ title }) => ({ title, align: 'right' as const }))]
  const several = points.filter(point => reasonShares(point).length > 1)
  const notes = [
    ...(same.length === 0
      ? []
      : [`every policy: ${same.map(({ title, cells }) => `${title} ${cells[0]}`).join(', ')}`]),
    ...several.map(point => `${point.variant}: ${spaced(reasonsInWords(point))}`),
    ...points
      .filter(({ runs }) => isOverloaded(runs))
      .map(
        point =>
          `${point.variant}: the queue grows: ${whole(over(point, one => one.requestsPerSecond).mean)} of ${rateText(rate)} requests per second finish, so its times grow with the length of the run`,
      ),
  ]
  return [
    wrapped(`${terminal.bold(`${rateText(rate)} requests per second`)}${remark}`, terminal.width),
    table(heads, rows, terminal),
    ...notes.map(note => terminal.dim(`  ${wrapped(note, terminal.width - 2, 2)}`)),
  ].join('\n')
}

const text = (cell: Cell) => spaced(cellText(cell))
/** Plain spaces, so that terminal output can be searched and cut. */
const spaced = (words: string) => words.replaceAll('\u00a0', ' ')
