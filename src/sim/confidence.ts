/** Mean of a few runs with its 95 % confidence interval (Student's t). */
export interface Interval {
  readonly mean: number
  /** Half the width: mean ± half. NaN for a single value. */
  readonly half: number
  readonly count: number
}

/**
 * 97.5 % quantiles of Student's t for 1…30 degrees of freedom; beyond that, Cornish–Fisher from the normal
 * quantile is exact to 4 digits.
 */
const T = [
  12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131,
  2.12, 2.11, 2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045, 2.042,
]
const Z = 1.959964

export function meanInterval(values: readonly number[]): Interval {
  const count = values.length
  const mean = values.reduce((a, b) => a + b, 0) / count
  if (count < 2) return { mean, half: NaN, count }
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (count - 1)
  return { mean, half: studentT(count - 1) * Math.sqrt(variance / count), count }
}

/**
 * Chance that |t| of Student with these degrees of freedom is at least as large: the finite series of
 * Abramowitz and Stegun, 26.7.3 and 26.7.4.
 */
export function studentP(t: number, degrees: number): number {
  if (Number.isNaN(t)) return 1
  const angle = Math.atan(Math.abs(t) / Math.sqrt(degrees))
  const [sine, cosine] = [Math.sin(angle), Math.cos(angle)]
  const isOdd = degrees % 2 === 1
  let term = isOdd ? cosine : 1
  let sum = degrees === 1 ? 0 : term
  for (let power = isOdd ? 3 : 2; power <= degrees - 2; power += 2) {
    term *= (cosine * cosine * (power - 1)) / power
    sum += term
  }
  const within = isOdd ? (2 / Math.PI) * (angle + sine * sum) : sine * sum
  return Math.max(0, 1 - within)
}

export function studentT(degrees: number): number {
  return T[degrees - 1] ?? Z + (Z ** 3 + Z) / (4 * degrees)
}
