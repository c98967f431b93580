/**
 * The tables of docs/guides/scale.md, from docs/evidence/results/scale.json.gz. Each replaces the text
 * between two marker comments of the page; the rest of the page is written by hand.
 */
import { changeText } from './simulation-measures.ts'
import { cellText } from './exhibit-cells.ts'
import { markdownTable } from './markdown-table.ts'
import { fixed, whole } from './numbers.ts'
import { bytes } from './terminal.ts'
import type { CellFigures, ScaleFigures, SizeFigures, StaleFigures, WireFigures } from './scale-figures.ts'

/** Requests per second and gateways for the traffic between gateways. */
const RATE = 10_000
const GATEWAYS = 8
/** Younger views than this cost nothing, in milliseconds. */
const YOUNG_MS = 20
/** The page has what a decision needs; the file has the other runs. */
const ALL_ROWS = 'All runs are in [scale.json.gz](../evidence/results/scale.json.gz)'

export function fillScalePage(page: string, figures: ScaleFigures): string {
  const tables: Readonly<Record<string, string>> = {
    'staleness-2P8D': `${stalenessTable(figures.staleness.clusters, '2P8D')}\n\n${ALL_ROWS}, with 2 and 4 gateways, views of 5 ms, \`power_of_two\` and \`round_robin\`.`,
    'staleness-64D': stalenessTable(figures.staleness.clusters, '64D'),
    cells: `${cellTable(figures.cells.rows)}\n\n${ALL_ROWS}.`,
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
    throw new RangeError(`docs/guides/scale.md has no markers for ${name}: expected ${start} and ${end}`)
  return `${page.slice(0, from + start.length)}\n\n${made}\n\n${page.slice(to)}`
}

const change = (interval: StaleFigures['p50Change']) =>
  interval === undefined ? '' : cellText(changeText(interval))

/**
 * Policies that anticipate, each without and with it, for one gateway and for the largest number of gateways.
 */
function stalenessTable(clusters: ScaleFigures['staleness']['clusters'], topology: string): string {
  const rows = clusters.find(cluster => cluster.topology === topology)?.rows ?? []
  const max = Math.max(...rows.map(({ gateways }) => gateways))
  const anticipating = rows.filter(row => row.anticipating)
  const shown = rows.filter(
    ({ policy, gateways, viewAgeMs, anticipating: own }) =>
      !own &&
      (gateways === 1 || (gateways === max && (viewAgeMs ?? Infinity) >= YOUNG_MS)) &&
      anticipating.some(other => other.policy === policy),
  )
  const same = (a: StaleFigures, b: StaleFigures) =>
    a.policy === b.policy && a.gateways === b.gateways && a.viewAgeMs === b.viewAgeMs
  return markdownTable(
    ['policy', 'gateways', 'view of the others', 'TPOT p50', 'anticipating', 'TPOT p99', 'anticipating'],
    3,
    shown.map(row => {
      const other = anticipating.find(each => same(each, row))
      const alone = row.gateways === 1
      return [
        row.policy,
        whole(row.gateways),
        alone ? 'exact' : row.viewAgeMs === null ? 'none' : `${fixed(row.viewAgeMs, 0)} ms old`,
        alone ? `${fixed(row.p50.mean, 2)} ms` : change(row.p50Change),
        change(other?.p50Change),
        alone ? `${fixed(row.p99.mean, 2)} ms` : change(row.p99Change),
        change(other?.p99Change),
      ]
    }),
  )
}

/**
 * Cells of one worker are left out unless chosen by signature: there the policy inside has nothing to choose.
 * So are those chosen by load, whose TPOT is that of a random choice within 2 points.
 */
function cellTable(rows: readonly CellFigures[]): string {
  const words = { random: 'at random', load: '', locality: 'by signature' }
  const workers = 64
  return markdownTable(
    ['policy in the cell', 'cells', 'chosen', 'TPOT p50', 'TPOT p99', 'imbalance'],
    3,
    rows
      .filter(({ cells, by }) => by !== 'load' && (cells < workers || by === 'locality'))
      .map(row => [
        row.policy,
        `${whole(row.cells)} × ${whole(workers / row.cells)}`,
        row.by === null ? '' : words[row.by],
        row.by === null ? `${fixed(row.p50.mean, 2)} ms` : change(row.p50Change),
        row.by === null ? `${fixed(row.p99.mean, 2)} ms` : change(row.p99Change),
        fixed(row.imbalance.mean, 2),
      ]),
  )
}

/**
 * A gateway receives the dispatches and completions of all others and, for `union`, the expected experts of
 * each request.
 */
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
  return markdownTable(
    ['per request', 'lab16', 'large', 'received by a gateway, lab16', 'received, large'],
    1,
    [
      row('dispatch and completion, 7 bytes each', both, both),
      row('the same as JSON lines', 2 * event.json, 2 * event.json),
      row('with expected experts, 16 bits each', ...withDelta(delta.raw)),
      row('16 bits, deflated', ...withDelta(delta.deflated)),
      row('8 bits', ...withDelta(delta.bytes)),
      row('8 bits, deflated', ...withDelta(delta.bytesDeflated)),
    ],
  )
}

function sizeTable(rows: readonly SizeFigures[]): string {
  return markdownTable(
    ['policy', 'decode workers', 'requests', 'in flight', 'CPU time', 'peak memory'],
    1,
    rows.map(row => [
      row.cells === 1 ? row.policy : `${row.policy}, ${whole(row.cells)} cells by signature`,
      whole(row.workers),
      whole(row.requests),
      whole(row.inflight),
      `${fixed(row.cpuSeconds, 1)} s`,
      bytes(row.peakBytes),
    ]),
  )
}
