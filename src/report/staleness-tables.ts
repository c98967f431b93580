/** Cost of stale views as terminal tables, one per policy, with changes against a single gateway. */
import { exactPoint, type StalenessOptions, type StalenessPoint } from '../sim/staleness.ts'
import type { GatewaysData } from '../sim/study.ts'
import { changeAgainst } from '../sim/sweep.ts'
import type { Cell } from './exhibit.ts'
import { cellText } from './exhibit-cells.ts'
import { fixed, many, whole } from './numbers.ts'
import {
  BATCH,
  changeText,
  EXPERTS,
  IMBALANCE,
  measured,
  type Measure,
  rateText,
  TPOT,
  variantsOf,
} from './simulation-measures.ts'
import { type Column, table } from './table.ts'
import { printable, type Terminal, wrapped } from './terminal.ts'

const MAX_COLUMNS = 120

export const STALENESS_COLUMNS: readonly string[] = [
  'gateways',
  'view',
  'anticipating',
  TPOT.p50.name,
  'change',
  TPOT.p99.name,
  'change',
  IMBALANCE.name,
  EXPERTS.name,
  BATCH.name,
]

/** The cells of one point, in the order of the columns. */
export function stalenessRow(points: readonly StalenessPoint[], point: StalenessPoint): Cell[] {
  const { gateways } = point
  const change = ({ of }: Measure): Cell =>
    gateways === undefined ? null : changeText(changeAgainst(exactPoint(points, point), point, of))
  const plain = (measure: Measure): Cell => {
    const { half: _, ...value } = measured(point, measure)
    return value
  }
  return [
    whole(gateways?.count ?? 1),
    gateways === undefined ? 'exact' : viewText(gateways),
    gateways === undefined || gateways.viewAgeMs === null
      ? ''
      : gateways.anticipating === true
        ? 'yes'
        : 'no',
    plain(TPOT.p50),
    change(TPOT.p50),
    plain(TPOT.p99),
    change(TPOT.p99),
    measured(point, IMBALANCE),
    plain(EXPERTS),
    plain(BATCH),
  ]
}

function viewText({ viewAgeMs }: GatewaysData): string {
  return viewAgeMs === null ? 'own only' : `${fixed(viewAgeMs, Number.isInteger(viewAgeMs) ? 0 : 1)} ms old`
}

export function stalenessTables(
  points: readonly StalenessPoint[],
  asked: StalenessOptions,
  seconds: number,
  terminal: Terminal,
): string {
  const { study, rate, seeds } = asked
  const narrow = { ...terminal, width: Math.min(terminal.width, MAX_COLUMNS) }
  const conditions = `Simulated: ${study.topology}, ${rateText(rate)} requests per second, profile ${study.profile}, trace ${study.trace}, ${whole(study.requests)} requests per run, ${many(seeds, 'seed')}. Changes against one gateway, paired by seed, ± 95 %.`
  const columns = STALENESS_COLUMNS.map((title, at): Column =>
    at === 1 || at === 2 ? { title } : { title, align: 'right' },
  )
  return [
    wrapped(terminal.dim(printable(conditions)), narrow.width),
    ...variantsOf(points).map(variant => {
      const rows = points
        .filter(point => point.variant === variant)
        .map(point => stalenessRow(points, point).map(text))
      return `${terminal.bold(variant)}\n${table(columns, rows, narrow)}`
    }),
    terminal.dim(`took ${fixed(seconds, 1)} s`),
  ].join('\n\n')
}

/** Plain spaces, so that terminal output can be searched and cut. */
const text = (cell: Cell) => cellText(cell).replaceAll('\u00a0', ' ')
