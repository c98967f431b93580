import type { Random } from './random.ts'

/** Pairs of two different rows, i[p] < j[p], without repetition, sorted so that neighbours share a row. */
export interface Pairs {
  readonly i: Uint32Array
  readonly j: Uint32Array
}

export const allPairsOf = (rows: number): number => (rows * (rows - 1)) / 2

/**
 * `count` pairs of `rows` rows, every pair with the same chance; all pairs if `count` is that many or more.
 *
 * The rows are placed on a circle in random order, and each row is paired with the one `step` positions
 * ahead, for one random step after another. So all rows are in equally many pairs, give or take two: if rows
 * differ a lot, as long and short prompts do, an estimate over such pairs varies less between seeds than one
 * over independently drawn pairs.
 */
export function drawPairs(rows: number, count: number, random: Random): Pairs {
  const taken = Math.min(count, allPairsOf(rows))
  const circle = shuffled(rows, random)
  const steps = shuffled(Math.floor(rows / 2), random).map(step => step + 1)
  const keys = new Float64Array(taken)
  let used = 0
  for (let round = 0; used < taken; round++) {
    const step = steps[round]!
    const length = 2 * step === rows ? step : rows // half way round, each pair would occur twice
    for (let place = 0; place < length && used < taken; place++) {
      const [a, b] = [circle[place]!, circle[(place + step) % rows]!]
      keys[used++] = Math.min(a, b) * rows + Math.max(a, b)
    }
  }
  keys.sort()
  return {
    i: Uint32Array.from(keys, key => Math.floor(key / rows)),
    j: Uint32Array.from(keys, key => key % rows),
  }
}

/** 0 … n − 1 in random order (Fisher and Yates). */
export function shuffled(n: number, random: Random): Uint32Array {
  const list = Uint32Array.from({ length: n }, (_, at) => at)
  for (let left = n; left > 1; left--) {
    const at = random.below(left)
    const last = list[left - 1]!
    list[left - 1] = list[at]!
    list[at] = last
  }
  return list
}
