// Two builds in the same rounds: the mean ratio of their CPU times with its 95 % interval.
import { table } from '../../lib/table.mjs'

/** 97.5 % quantiles of Student's t by degrees of freedom; beyond the table it is close to 2. */
const T = [0, 12.71, 4.3, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.2, 2.18, 2.16, 2.14, 2.13]

/** Geometric mean of ratios and its interval. */
export function meanRatio(ratios) {
  const logs = ratios.map(Math.log)
  const mean = logs.reduce((sum, value) => sum + value, 0) / logs.length
  const variance = logs.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (logs.length - 1)
  const margin = (T[logs.length - 1] ?? 2) * Math.sqrt(variance / logs.length)
  return { mean: Math.exp(mean), low: Math.exp(mean - margin), high: Math.exp(mean + margin) }
}

export function ratioTable(rows, results) {
  const lines = rows.flatMap(row =>
    row.figures
      .filter(({ isCost, wall }) => isCost && !wall)
      .map(({ name, of }) => {
        const rounds = results[row.name].filter(({ eldr, before }) => eldr && before)
        const { mean, low, high } = meanRatio(rounds.map(({ eldr, before }) => of(eldr) / of(before)))
        return [
          row.title,
          name,
          mean.toFixed(3),
          `${low.toFixed(3)} to ${high.toFixed(3)}`,
          String(rounds.length),
        ]
      }),
  )
  return table(['', 'figure', 'ratio', '95 % interval', 'rounds'], lines)
}
