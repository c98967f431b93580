/**
 * Ordinary least squares for a few columns, by Householder reflections, and the same with coefficients that
 * must not be negative.
 */
export interface LinearFit {
  /** One per column. */
  readonly coefficients: Float64Array
  /** Standard error of each; NaN if there are no more samples than columns, 0 for one held at 0. */
  readonly errors: Float64Array
  /** Share of the variance explained; 1 if the values do not vary. */
  readonly r2: number
  /** Standard deviation of the residuals. */
  readonly sigma: number
  readonly count: number
}

type Column = ArrayLike<number>

/** Columns must be independent; give one of ones for an intercept. */
export function leastSquares(columns: readonly Column[], values: Column): LinearFit {
  const [count, width] = [values.length, columns.length]
  if (columns.some(column => column.length !== count)) throw new RangeError('columns of different lengths')
  if (count < width) throw new RangeError(`${count} samples for ${width} columns`)
  const r = columns.map(column => Float64Array.from(column))
  const y = Float64Array.from(values)
  for (let k = 0; k < width; k++) reflect(r, y, k)
  const coefficients = backSubstitute(r, y)
  const residual = sumOf(count, i => (values[i]! - predicted(columns, coefficients, i)) ** 2)
  const sigma = count > width ? Math.sqrt(residual / (count - width)) : NaN
  const mean = sumOf(count, i => values[i]!) / count
  const total = sumOf(count, i => (values[i]! - mean) ** 2)
  return {
    coefficients,
    errors: inverseNorms(r).map(norm => norm * sigma),
    r2: total === 0 ? 1 : 1 - residual / total,
    sigma,
    count,
  }
}

/** Leaves out the column with the most negative coefficient, in standard errors, until none is negative. */
export function nonNegativeLeastSquares(columns: readonly Column[], values: Column): LinearFit {
  let kept = columns.map((_, at) => at)
  for (;;) {
    const fit = leastSquares(
      kept.map(at => columns[at]!),
      values,
    )
    const weight = (i: number) => fit.coefficients[i]! / (fit.errors[i]! > 0 ? fit.errors[i]! : 1)
    const worst = kept.reduce((low, _, i) => (weight(i) < weight(low) ? i : low), 0)
    if (kept.length === 1 || fit.coefficients[worst]! >= 0) return spread(fit, kept, columns.length)
    kept = kept.filter((_, i) => i !== worst)
  }
}

function spread(fit: LinearFit, kept: readonly number[], width: number): LinearFit {
  const [coefficients, errors] = [new Float64Array(width), new Float64Array(width)]
  kept.forEach((at, i) => {
    coefficients[at] = Math.max(0, fit.coefficients[i]!)
    errors[at] = fit.errors[i]!
  })
  return { ...fit, coefficients, errors }
}

/**
 * Makes column k zero below its diagonal, and applies the same reflection to what is right of it and to y.
 */
function reflect(columns: readonly Float64Array[], y: Float64Array, k: number): void {
  const pivot = columns[k]!
  const count = pivot.length
  const norm = Math.sqrt(sumOf(count - k, i => pivot[k + i]! ** 2))
  const largest = Math.sqrt(sumOf(count, i => pivot[i]! ** 2))
  if (norm <= 1e-10 * largest || norm === 0) throw new RangeError(`column ${k} depends on those before it`)
  const alpha = pivot[k]! > 0 ? -norm : norm
  const v = pivot.slice(k)
  v[0]! -= alpha
  const scale = 2 / sumOf(v.length, i => v[i]! ** 2)
  for (const target of [...columns.slice(k), y]) {
    const dot = scale * sumOf(v.length, i => v[i]! * target[k + i]!)
    for (let i = 0; i < v.length; i++) target[k + i]! -= dot * v[i]!
  }
}

function backSubstitute(r: readonly Float64Array[], y: Float64Array): Float64Array {
  const solved = new Float64Array(r.length)
  for (let k = r.length - 1; k >= 0; k--) {
    let left = y[k]!
    for (let j = k + 1; j < r.length; j++) left -= r[j]![k]! * solved[j]!
    solved[k] = left / r[k]![k]!
  }
  return solved
}

/** √ of the diagonal of (RᵀR)⁻¹ = R⁻¹R⁻ᵀ: the norms of the rows of R⁻¹. */
function inverseNorms(r: readonly Float64Array[]): Float64Array {
  const squares = new Float64Array(r.length)
  for (let k = 0; k < r.length; k++) {
    const unit = new Float64Array(r.length)
    unit[k] = 1
    backSubstitute(r, unit).forEach((value, row) => (squares[row]! += value ** 2))
  }
  return squares.map(Math.sqrt)
}

function predicted(columns: readonly Column[], coefficients: Float64Array, row: number): number {
  return columns.reduce((sum, column, at) => sum + coefficients[at]! * column[row]!, 0)
}

function sumOf(count: number, of: (i: number) => number): number {
  let sum = 0
  for (let i = 0; i < count; i++) sum += of(i)
  return sum
}
