/**
 * Cosines and sines of the rotary position embedding, identical on every machine and release of Node:
 * JavaScript leaves the last bits of Math.cos, Math.sin and powers to the engine, while sums, products and
 * square roots are correctly rounded.
 */

export interface TurnsShape {
  readonly positions: number
  readonly headWidth: number
  readonly ropeTheta: number
}

/** π/2 in two parts: the first has 33 bits, so its products with integers below 2^20 are exact. */
const QUARTER = 1.57079632673412561417
const QUARTER_REST = 6.07710050650619224932e-11
const TERMS = 18
const round = Math.fround

/**
 * [positions][cosines, sines]. Angles are in single precision, as in PyTorch: a more precise angle would
 * differ at late positions.
 */
export function writeTurns(
  { positions, headWidth, ropeTheta }: TurnsShape,
  numbers: Float32Array,
  at: number,
): void {
  const half = headWidth / 2
  const frequencies = Array.from({ length: half }, (_, i) =>
    round(1 / round(power(ropeTheta, round((2 * i) / headWidth)))),
  )
  for (let position = 0; position < positions; position++) {
    for (let i = 0; i < half; i++) {
      const [cosine, sine] = turn(round(position * frequencies[i]!))
      numbers[at + position * headWidth + i] = cosine
      numbers[at + position * headWidth + half + i] = sine
    }
  }
}

/** base^exponent for an exponent in [0, 1): one square root per binary digit. */
export function power(base: number, exponent: number): number {
  let [result, root, rest] = [1, base, exponent]
  while (rest > 0) {
    root = Math.sqrt(root)
    rest *= 2
    if (rest < 1) continue
    result *= root
    rest -= 1
  }
  return result
}

/** Cosine and sine of an angle from 0 to about a million. */
export function turn(angle: number): readonly [cosine: number, sine: number] {
  const quarters = Math.round(angle / (QUARTER + QUARTER_REST))
  const x = angle - quarters * QUARTER - quarters * QUARTER_REST
  // Taylor series, smallest terms first: within an eighth of a turn, terms after the eighteenth are below a
  // double’s last bit.
  let [cosine, sine] = [1, 1]
  for (let n = TERMS; n > 0; n -= 2) {
    cosine = 1 - (cosine * x * x) / (n * (n - 1))
    sine = 1 - (sine * x * x) / (n * (n + 1))
  }
  sine *= x
  const [c, s] = quarters % 2 === 0 ? [cosine, sine] : [-sine, cosine]
  return quarters % 4 < 2 ? [c, s] : [-c, -s]
}
