/** Ranks from 1 with ties averaged, by a comparison sort of positions: the oracle of the radix sort. */
export function ranksBySorting(values: ArrayLike<number>): number[] {
  const order = Array.from({ length: values.length }, (_, at) => at).sort((a, b) => values[a]! - values[b]!)
  const ranks: number[] = []
  for (let from = 0, to = 0; from < order.length; from = to) {
    while (to < order.length && values[order[to]!] === values[order[from]!]) to++
    for (let at = from; at < to; at++) ranks[order[at]!] = (from + 1 + to) / 2
  }
  return ranks
}

export function pearson(x: ArrayLike<number>, y: ArrayLike<number>): number {
  const n = x.length
  const mean = (values: ArrayLike<number>) => Array.from(values).reduce((a, b) => a + b, 0) / n
  const [mx, my] = [mean(x), mean(y)]
  let [xy, xx, yy] = [0, 0, 0]
  for (let i = 0; i < n; i++) {
    xy += (x[i]! - mx) * (y[i]! - my)
    xx += (x[i]! - mx) ** 2
    yy += (y[i]! - my) ** 2
  }
  return xx * yy > 0 ? xy / Math.sqrt(xx * yy) : 0
}

export const spearmanBySorting = (x: ArrayLike<number>, y: ArrayLike<number>): number =>
  pearson(ranksBySorting(x), ranksBySorting(y))
