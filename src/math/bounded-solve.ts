/**
 * Solves Ax = b for a few variables within bounds; A is positive definite. As long as a variable is outside
 * its bounds, the one farthest outside is fixed at its bound and the others are solved for again: the least
 * squares solution within the bounds, or close to it if several bounds are reached.
 */
export function boundedSolve(
  matrix: ArrayLike<number>,
  values: ArrayLike<number>,
  low: ArrayLike<number>,
  high: ArrayLike<number>,
): Float64Array {
  const size = values.length
  const solved = new Float64Array(size)
  const free = Array.from({ length: size }, (_, at) => at)
  for (;;) {
    solveFree(matrix, values, free, solved)
    let [worst, outside] = [-1, 0]
    for (const at of free) {
      const by = Math.max(low[at]! - solved[at]!, solved[at]! - high[at]!)
      if (by > outside) [worst, outside] = [at, by]
    }
    if (worst === -1) return solved
    solved[worst] = solved[worst]! < low[worst]! ? low[worst]! : high[worst]!
    free.splice(free.indexOf(worst), 1)
  }
}

/** Gaussian elimination over the free variables; `solved` has the values of the others. */
function solveFree(
  matrix: ArrayLike<number>,
  values: ArrayLike<number>,
  free: readonly number[],
  solved: Float64Array,
): void {
  const size = values.length
  const rows = free.map(row => {
    let value = values[row]!
    for (let column = 0; column < size; column++)
      if (!free.includes(column)) value -= matrix[row * size + column]! * solved[column]!
    return [...free.map(column => matrix[row * size + column]!), value]
  })
  const count = free.length
  for (let k = 0; k < count; k++)
    for (let row = k + 1; row < count; row++) {
      const factor = rows[row]![k]! / rows[k]![k]!
      for (let column = k; column <= count; column++) rows[row]![column]! -= factor * rows[k]![column]!
    }
  for (let k = count - 1; k >= 0; k--) {
    let value = rows[k]![count]!
    for (let column = k + 1; column < count; column++) value -= rows[k]![column]! * solved[free[column]!]!
    solved[free[k]!] = value / rows[k]![k]!
  }
}
