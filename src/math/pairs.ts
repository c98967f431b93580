import type { Random } from './random.ts'

/** Pairs of two different rows, i[p] < j[p], no pair twice, sorted by i so that neighbours share a row. */
export interface Pairs {
  readonly i: Uint32Array
  readonly j: Uint32Array
}

export const allPairsOf = (rows: number): number => (rows * (rows - 1)) / 2

/** `count` pairs of `rows` rows, drawn without replacement; all of them when `count` asks for as many or more. */
export function drawPairs(rows: number, count: number, random: Random): Pairs {
  const all = allPairsOf(rows)
  const taken = Math.min(count, all)
  const pairs = { i: new Uint32Array(taken), j: new Uint32Array(taken) }
  // Selection sampling (Knuth, Algorithm S) reads the pairs in order; where few of very many are wanted, Floyd's way touches those alone.
  if (taken * 64 > all) selectInOrder(rows, all, pairs, random)
  else selectByNumber(all, pairs, random)
  return pairs
}

function selectInOrder(rows: number, all: number, { i, j }: Pairs, random: Random): void {
  let seen = 0
  let taken = 0
  for (let a = 0; a < rows && taken < i.length; a++) {
    for (let b = a + 1; b < rows && taken < i.length; b++, seen++) {
      if (i.length < all && random.uniform() * (all - seen) >= i.length - taken) continue
      i[taken] = a
      j[taken++] = b
    }
  }
}

/** Pair number x is (i, j) with x = j(j − 1)/2 + i. */
function selectByNumber(all: number, { i, j }: Pairs, random: Random): void {
  const chosen = new Set<number>()
  for (let top = all - i.length; top < all; top++) {
    const x = random.below(top + 1)
    chosen.add(chosen.has(x) ? top : x)
  }
  const rowsOf = (x: number) => {
    let b = Math.floor((1 + Math.sqrt(1 + 8 * x)) / 2)
    while ((b * (b - 1)) / 2 > x) b-- // the square root may round across a boundary
    while ((b * (b + 1)) / 2 <= x) b++
    return { a: x - (b * (b - 1)) / 2, b }
  }
  const sorted = Array.from(chosen, rowsOf).sort((x, y) => x.a - y.a || x.b - y.b)
  sorted.forEach(({ a, b }, p) => {
    i[p] = a
    j[p] = b
  })
}
