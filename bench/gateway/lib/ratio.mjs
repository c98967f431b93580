// Two builds in the same rounds: the mean ratio of their CPU times with its 95 % interval. Processes of one
// build differ from one another, so with several starts each start is one sample.
import { table } from '../../lib/table.mjs'

/** 97.5 % quantiles of Student's t by degrees of freedom; beyond the table it is close to 2. */
const T = [0, 12.71, 4.3, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.2, 2.18, 2.16, 2.14, 2.13]

/** Geometric mean. */
const meanOf = ratios => Math.exp(ratios.reduce((sum, ratio) => sum + Math.log(ratio), 0) / ratios.length)

/** Geometric mean of ratios and its interval. */
function meanRatio(ratios) {
  const logs = ratios.map(Math.log)
  const mean = Math.log(meanOf(ratios))
  const variance = logs.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (logs.length - 1)
  const margin = (T[logs.length - 1] ?? 2) * Math.sqrt(variance / logs.length)
  return { mean: Math.exp(mean), low: Math.exp(mean - margin), high: Math.exp(mean + margin) }
}

/** The ratios of the rounds, or with several starts the mean ratio of each start. */
function samplesOf(rounds, ratioOf) {
  const starts = [...new Set(rounds.map(({ start }) => start))]
  if (starts.length === 1) return rounds.map(ratioOf)
  return starts.map(wanted => meanOf(rounds.filter(({ start }) => start === wanted).map(ratioOf)))
}

/** Mean ratio of a figure over rounds, with its interval. */
export const ratioOver = (rounds, { of }) =>
  meanRatio(samplesOf(rounds, ({ eldr, before }) => of(eldr) / of(before)))

export function ratioTable(rows, results) {
  const lines = rows.flatMap(row =>
    row.figures
      .filter(({ isCost, wall }) => isCost && !wall)
      .map(figure => {
        const rounds = results[row.name].filter(({ eldr, before }) => eldr && before)
        const { mean, low, high } = ratioOver(rounds, figure)
        return [
          row.title,
          figure.name,
          mean.toFixed(3),
          `${low.toFixed(3)} to ${high.toFixed(3)}`,
          String(rounds.length),
          String(new Set(rounds.map(({ start }) => start)).size),
        ]
      }),
  )
  return table(['', 'figure', 'ratio', '95 % interval', 'rounds', 'starts'], lines)
}
