/** Tables of a sweep: measured and simulated values side by side, one table per rate. */
import { fixed, percent } from '../report/numbers.ts'
import { table } from '../report/table.ts'
import { printable, type Terminal, wrapped } from '../report/terminal.ts'
import type { SweepRow } from './sweep.ts'

/** Largest relative difference of p50 TPOT at which measurement and simulator agree. */
export const AGREEMENT = 0.05

const right = (title: string) => ({ title, align: 'right' as const })
const change = (share: number) => `${share > 0 ? '+' : ''}${percent(share, 1).replaceAll('\u00a0', ' ')}`

export function sweepTables(rows: readonly SweepRow[], notes: readonly string[], terminal: Terminal): string {
  const rates = [...new Set(rows.map(({ rate }) => rate))]
  const agreed = rows.filter(({ tpotP50Ratio }) => Math.abs(tpotP50Ratio - 1) <= AGREEMENT).length
  const verdict = `p50 TPOT within ${AGREEMENT * 100} % of the simulator’s: ${agreed} of ${rows.length}`
  return [
    ...rates.map(rate =>
      rateTable(
        rows.filter(row => row.rate === rate),
        rate,
        terminal,
      ),
    ),
    [
      agreed === rows.length ? verdict : terminal.warn(verdict),
      ...notes.map(note => terminal.dim(wrapped(note, terminal.width))),
    ].join('\n'),
  ].join('\n\n')
}

function rateTable(rows: readonly SweepRow[], rate: number, terminal: Terminal): string {
  const [base] = rows
  const columns = [
    { title: 'policy' },
    ...[
      'TPOT p50',
      'simulated',
      'off',
      'gain',
      'simulated',
      'TPOT p99',
      'simulated',
      'TTFT p50',
      'simulated',
      'failed',
    ].map(right),
  ]
  const cells = rows.map(row => {
    const { policy, live, simulated, tpotP50Ratio } = row
    // A gain is marked if requests of this row or of the baseline were sent late.
    const mark = live.client.keptUp && base!.live.client.keptUp ? '' : ' ?'
    const gains =
      row === base
        ? ['·', '·']
        : [
            `${change(live.tpotMs.p50 / base!.live.tpotMs.p50 - 1)}${mark}`,
            change(simulated.tpotMs.p50 / base!.simulated.tpotMs.p50 - 1),
          ]
    const both = (a: number, b: number | undefined, digits: number) => [fixed(a, digits), fixed(b, digits)]
    return [
      live.client.keptUp ? policy : `${policy} *`,
      ...both(live.tpotMs.p50, simulated.tpotMs.p50, 2),
      change(tpotP50Ratio - 1),
      ...gains,
      ...both(live.tpotMs.p99, simulated.tpotMs.p99, 2),
      ...both(live.ttftMs.p50, simulated.ttftMs?.p50, 1),
      String(live.requests.failed),
    ]
  })
  const late = rows.some(({ live }) => !live.client.keptUp)
    ? [
        terminal.warn(
          '  * the client could not keep up: its own delays are part of the times, and gains marked ? are not valid measurements',
        ),
      ]
    : []
  const failed = rows.flatMap(({ policy, live }) =>
    live.errors.map(({ kind, count, example }) =>
      terminal.warn(`  ${policy}: ${count} failed, ${kind}: ${printable(example)}`),
    ),
  )
  return [
    `${terminal.bold(`${fixed(rate, Number.isInteger(rate) ? 0 : 2)} requests per second`)} ${terminal.dim(`(ms; gains over ${base?.policy})`)}`,
    table(columns, cells, terminal),
    ...late,
    ...failed,
  ].join('\n')
}
