import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { golden } from '../../test/golden.ts'
import { ranksBySorting, spearmanBySorting } from '../../test/oracles/ranks.ts'
import { bytesFor, createKernel, layOut, SORT_COUNTER_BYTES } from './kernel.ts'

function ranksOf(values: readonly number[]): number[] {
  const n = values.length
  const kernel = createKernel(bytesFor(4 * n, 8 * n, 8 * n, 8 * n, SORT_COUNTER_BYTES))
  const { f32, f64, u32 } = layOut(kernel)
  const [list, ranks, a, b, counters] = [f32(n), f64(n), u32(2 * n), u32(2 * n), u32(SORT_COUNTER_BYTES / 4)]
  list.view.set(values)
  kernel.centredRanks(kernel.sort(list.at, n, a.at, b.at, counters.at), n, ranks.at)
  return Array.from(ranks.view, rank => rank + (n + 1) / 2)
}

/** Spearman's ρ as `PairSpace` computes it with the kernel. */
function spearman(x: Float32Array, y: Float32Array): number {
  const n = x.length
  const kernel = createKernel(bytesFor(4 * n, 8 * n, 8 * n, 8 * n, SORT_COUNTER_BYTES))
  const { f32, f64, u32 } = layOut(kernel)
  const [values, ranks, a, b, counters] = [
    f32(n),
    f64(n),
    u32(2 * n),
    u32(2 * n),
    u32(SORT_COUNTER_BYTES / 4),
  ]
  const sort = () => kernel.sort(values.at, n, a.at, b.at, counters.at)
  values.view.set(y)
  const squares = kernel.centredRanks(sort(), n, ranks.at)
  values.view.set(x)
  return kernel.correlation(sort(), n, ranks.at, squares)
}

describe('ranks', () => {
  it.each(golden.ranks)('match SciPy: $name', ({ values, ranks }) => {
    expect(ranksOf(values)).toEqual(ranks)
  })

  it('match a comparison sort for any finite floats', () => {
    const value = fc.oneof(fc.constantFrom(0, -0, 1, 2), fc.float({ noNaN: true, noDefaultInfinity: true }))
    fc.assert(
      fc.property(fc.array(value, { maxLength: 80 }), values => {
        expect(ranksOf(values)).toEqual(ranksBySorting(values))
      }),
      { numRuns: 500 },
    )
  })
})

describe('spearman', () => {
  it.each(golden.spearman)('matches SciPy: $name', ({ x, y, rho }) => {
    expect(spearman(Float32Array.from(x), Float32Array.from(y))).toBeCloseTo(rho, 12)
  })

  it('is Pearson’s correlation of ranks', () => {
    const value = fc.integer({ min: 0, max: 6 })
    fc.assert(
      fc.property(fc.array(fc.tuple(value, value), { minLength: 2, maxLength: 40 }), pairs => {
        const [x, y] = [pairs.map(([a]) => a), pairs.map(([, b]) => b)]
        expect(spearman(Float32Array.from(x), Float32Array.from(y))).toBeCloseTo(spearmanBySorting(x, y), 10)
      }),
    )
  })

  it('is 0 when one side is constant', () => {
    expect(spearman(new Float32Array([1, 2, 3]), new Float32Array([7, 7, 7]))).toBe(0)
  })
})
