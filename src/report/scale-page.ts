/**
 * The tables of docs/guides/scale.md, made of docs/evidence/results/scale.json and decision-scale.json. The page is written by hand around them: each stands
 * between two comments, and what is between them is made anew.
 */
import { changeText } from './simulation-measures.ts'
import { cellText } from './exhibit-cells.ts'
import { fixed, whole } from './numbers.ts'
import { bytes } from './terminal.ts'
import type {
  CellFigures,
  DecisionFigures,
  ScaleFigures,
  SizeFigures,
  StaleFigures,
  WireFigures,
} from './scale-figures.ts'

/** Requests a second and gateways for which traffic between them is given. */
const RATE = 10_000
const GATEWAYS = 8
/** Requests on each worker, for the memory that those in flight take. */
const ON_EACH = 40

export function fillScalePage(page: string, figures: ScaleFigures): string {
  const tables: Readonly<Record<string, string>> = {
    'staleness-2P8D': stalenessTable(figures.staleness.clusters, '2P8D'),
    'staleness-64D': stalenessTable(figures.staleness.clusters, '64D'),
    cells: cellTable(figures.cells.rows),
    decisions: decisionTable(figures.decisions.data),
    'decisions-on': figures.decisions.about,
    wire: wireTable(figures.wire),
    size: sizeTable(figures.size.rows),
  }
  return Object.entries(tables).reduce((text, [name, made]) => between(text, name, made), page)
}

/** `<!-- name -->` … `<!-- /name -->` */
function between(page: string, name: string, made: string): string {
  const [start, end] = [`<!-- ${name} -->`, `<!-- /${name} -->`]
  const [from, to] = [page.indexOf(start), page.indexOf(end)]
  if (from < 0 || to < from)
    throw new RangeError(`docs/guides/scale.md has no place for ${name}: expected ${start} and ${end}`)
  return `${page.slice(0, from + start.length)}\n\n${made}\n\n${page.slice(to)}`
}

function markdown(head: readonly string[], words: number, rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`
  return [
    line(head),
    `|${head.map((_, at) => (at < words ? '---' : '---:')).join('|')}|`,
    ...rows.map(line),
  ].join('\n')
}

const change = (interval: StaleFigures['p50Change']) =>
  interval === undefined ? '' : cellText(changeText(interval))

/** Loads as they are seen beside loads with what is supposed, policy after policy; those that suppose nothing with the most gateways alone. */
function stalenessTable(clusters: ScaleFigures['staleness']['clusters'], topology: string): string {
  const rows = clusters.find(cluster => cluster.topology === topology)?.rows ?? []
  const most = Math.max(...rows.map(({ gateways }) => gateways))
  const supposes = new Set(rows.filter(({ anticipating }) => anticipating).map(({ policy }) => policy))
  const shown = rows.filter(
    row => !row.anticipating && (supposes.has(row.policy) || row.gateways === 1 || row.gateways === most),
  )
  const same = (a: StaleFigures, b: StaleFigures) =>
    a.policy === b.policy && a.gateways === b.gateways && a.viewAgeMs === b.viewAgeMs
  return markdown(
    [
      'policy',
      'gateways',
      'view of the others',
      'TPOT p50',
      'supposing',
      'TPOT p99',
      'supposing',
      'imbalance',
      'supposing',
    ],
    3,
    shown.map(row => {
      const other = rows.find(each => each.anticipating && same(each, row))
      const alone = row.gateways === 1
      return [
        row.policy,
        whole(row.gateways),
        alone ? 'exact' : row.viewAgeMs === null ? 'none' : `${fixed(row.viewAgeMs, 0)} ms old`,
        alone ? `${fixed(row.p50.mean, 2)} ms` : change(row.p50Change),
        change(other?.p50Change),
        alone ? `${fixed(row.p99.mean, 2)} ms` : change(row.p99Change),
        change(other?.p99Change),
        fixed(row.imbalance.mean, 2),
        other === undefined ? '' : fixed(other.imbalance.mean, 2),
      ]
    }),
  )
}

function cellTable(rows: readonly CellFigures[]): string {
  const words = { random: 'at random', load: 'by load', locality: 'by signature' }
  const workers = 64
  return markdown(
    [
      'policy in the cell',
      'cells',
      'chosen',
      'TPOT p50',
      'change',
      'TPOT p99',
      'change',
      'experts',
      'imbalance',
    ],
    3,
    rows.map(row => [
      row.policy,
      `${whole(row.cells)} × ${whole(workers / row.cells)}`,
      row.by === null ? '' : words[row.by],
      `${fixed(row.p50.mean, 2)} ms`,
      change(row.p50Change),
      `${fixed(row.p99.mean, 2)} ms`,
      change(row.p99Change),
      fixed(row.experts.mean, 1),
      fixed(row.imbalance.mean, 2),
    ]),
  )
}

function decisionTable(data: readonly DecisionFigures[]): string {
  const us = (ms: number) => `${fixed(1000 * ms, ms < 0.1 ? 1 : 0)} µs`
  const shapes = [...new Set(data.map(({ model, workers }) => `${model}|${workers}`))]
  return markdown(
    [
      'model',
      'workers',
      'jsq',
      'eldr',
      'union',
      'union: dispatch',
      'union: release',
      'state of workers',
      'of requests',
    ],
    1,
    shapes.map(key => {
      const of = (policy: string) =>
        data.find(one => `${one.model}|${one.workers}` === key && one.policy === policy)!
      const union = of('union')
      return [
        `${union.model}, ${union.layers} × ${union.experts}`,
        whole(union.workers),
        us(of('jsq').pick),
        us(of('eldr').pick),
        us(union.pick),
        us(union.dispatched),
        us(union.released),
        // Of a worker two numbers of four bytes for each cell; of a request, until it ends, one of two.
        bytes(8 * union.layers * union.experts * union.workers),
        bytes(2 * union.layers * union.experts * union.workers * ON_EACH),
      ]
    }),
  )
}

/** A gateway hears of what all others do: dispatches and ends, and with each dispatch what `union` expects of the request. */
function wireTable({ event, delta, cells, largeCells }: WireFigures): string {
  const perSecond = (message: number) => `${bytes(message * RATE * ((GATEWAYS - 1) / GATEWAYS))}/s`
  const row = (what: string, small: number, large: number) => [
    what,
    bytes(Math.round(small)),
    bytes(Math.round(large)),
    perSecond(small),
    perSecond(large),
  ]
  const grown = largeCells / cells
  const both = 2 * event.binary
  const withDelta = (size: number) => [both + size, both + size * grown] as const
  return markdown(
    ['for a request', 'lab16', 'large', 'a gateway hears, lab16', 'a gateway hears, large'],
    1,
    [
      row('dispatched and ended, 7 bytes each', both, both),
      row('the same as lines of JSON', 2 * event.json, 2 * event.json),
      row('and expected experts, 16 bits each', ...withDelta(delta.raw)),
      row('16 bits, deflated', ...withDelta(delta.deflated)),
      row('8 bits', ...withDelta(delta.bytes)),
      row('8 bits, deflated', ...withDelta(delta.bytesDeflated)),
    ],
  )
}

function sizeTable(rows: readonly SizeFigures[]): string {
  return markdown(
    [
      'policy',
      'decode workers',
      'requests',
      'in flight',
      'processor time',
      'peak memory',
      'TPOT p50',
      'TPOT p99',
    ],
    1,
    rows.map(row => [
      row.cells === 1 ? row.policy : `${row.policy}, ${whole(row.cells)} cells by signature`,
      whole(row.workers),
      whole(row.requests),
      whole(row.inflight),
      `${fixed(row.cpuSeconds, 1)} s`,
      bytes(row.peakBytes),
      `${fixed(row.p50, 2)} ms`,
      `${fixed(row.p99, 2)} ms`,
    ]),
  )
}
