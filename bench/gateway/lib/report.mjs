// Tables of a run: figures by row and router with ratios within rounds, CPU use, and what was left out or
// failed.
import { median } from '../../lib/measure.mjs'
import { table } from '../../lib/table.mjs'

const percent = value => `${Math.round(100 * value)}`

/** Median over the rounds with the figure; undefined if none has it. */
function middle(values) {
  const known = values.filter(value => Number.isFinite(value))
  return known.length === 0 ? undefined : median(known)
}

/** (largest − smallest) ÷ median: how far the rounds of one router lie apart. */
function spreadOf(values) {
  const known = values.filter(value => Number.isFinite(value))
  return known.length < 2 ? 0 : (Math.max(...known) - Math.min(...known)) / Math.abs(median(known))
}

/** Figures of a column by round. `results`: {row name: [{column name: measured} by round]} */
const byRound = (rounds, column, { of }, hops) =>
  rounds.map(round =>
    round[column] === undefined
      ? undefined
      : of(round[column], hops === 1 ? round.directOneHop : round.direct),
  )

/**
 * Everything as data: for each row and figure, the median of each column and the ratios of `eldr` to two
 * others.
 */
export function figuresOf(rows, results, columns) {
  return rows.flatMap(row =>
    row.figures.map(figure => {
      const rounds = results[row.name]
      const values = Object.fromEntries(
        columns.map(({ name, hops }) => [name, byRound(rounds, name, figure, hops)]),
      )
      const ratios = (a, b) => rounds.map((_, n) => (values[a]?.[n] ?? NaN) / (values[b]?.[n] ?? NaN))
      const ratio = (a, b) => (figure.noRatio ? undefined : middle(ratios(a, b)))
      return {
        row,
        figure,
        median: Object.fromEntries(columns.map(({ name }) => [name, middle(values[name])])),
        direct:
          figure.wall && !figure.isCost
            ? middle(rounds.map(({ direct }) => figure.of(direct, direct)))
            : undefined,
        toVllmRouter: ratio('eldr', 'vllm-router'),
        toUndici: ratio('eldr', 'undici'),
        spread: Math.max(...columns.map(({ name }) => spreadOf(values[name]))),
      }
    }),
  )
}

/** @param {ReturnType<typeof figuresOf>} figures */
export function figureTable(figures, columns) {
  const times = value => (value === undefined ? '–' : `${value.toFixed(2)} ×`)
  const head = [
    '',
    'figure',
    ...columns.map(({ label }) => label),
    'both legs by the client',
    'eldr ÷ vllm-router',
    'eldr ÷ undici',
    'spread, %',
  ]
  const lines = figures.map(({ row, figure, median, direct, toVllmRouter, toUndici, spread }, n) => [
    figures[n - 1]?.row === row ? '' : row.title,
    figure.name,
    ...columns.map(({ name }) => (median[name] === undefined ? '–' : figure.show(median[name]))),
    direct === undefined ? '–' : figure.show(direct),
    times(toVllmRouter),
    times(toUndici),
    percent(spread),
  ])
  return table(head, lines)
}

/** CPU share of the router, the client and the four workers: shows which one is the bottleneck. */
export function shareTable(rows, results, columns) {
  const share = (round, key) => (round === undefined ? NaN : round[key] / round.wallS)
  const cell = (rounds, column) => {
    const parts = ['routerCpuS', 'clientCpuS', 'workersCpuS'].map(key =>
      middle(rounds.map(round => share(round[column], key))),
    )
    return parts[0] === undefined ? '–' : parts.map(percent).join(' / ')
  }
  const lines = rows.map(row => [
    row.title,
    ...columns.map(({ name }) => cell(results[row.name], name)),
    cell(results[row.name], 'direct'),
  ])
  return table(
    [
      '% of a core: router / client / workers',
      ...columns.map(({ label }) => label),
      'both legs by the client',
    ],
    lines,
  )
}

/** CPU share of other programs, needed to judge the figures. */
export function othersNote(results, cores) {
  const all = Object.values(results).flatMap(rounds => rounds.flatMap(round => Object.values(round)))
  const shares = all
    .map(({ othersCpuS, wallS }) => othersCpuS / wallS / cores)
    .filter(share => Number.isFinite(share))
  const [usual, most] = [median(shares), Math.max(...shares)]
  const verdict = usual > 0.05 ? ' That is too much for published figures: costs rise and rates fall.' : ''
  return `Other programs used ${percent(usual)} % of the machine’s ${cores} cores (median of all cells; max ${percent(most)} %).${verdict}`
}

/** Each problem once, with its row and router. */
export function notesOf(rows, results, columns) {
  const said = (row, { name, label }) => {
    const notes = results[row.name].flatMap(round => round[name]?.notes ?? [])
    return notes.map(note => `${label}, ${row.title}: ${note}`)
  }
  const found = rows.flatMap(row => columns.flatMap(column => said(row, column)))
  return [...new Set(found)]
}
