import { readFileSync } from 'node:fs'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { bytesFor, createKernel, type Kernel, kernelKind, layOut, SORT_COUNTER_BYTES } from './kernel.ts'

const both = (bytes: number): Kernel[] => [createKernel(bytes, 'simd'), createKernel(bytes, 'plain')]
const floats = (length: number, min = -1, max = 1) =>
  fc.array(fc.float({ min: Math.fround(min), max: Math.fround(max), noNaN: true }), {
    minLength: length,
    maxLength: length,
  })
const bits = (values: Float32Array) =>
  Array.from(new Uint32Array(values.buffer, values.byteOffset, values.length))

describe('the SIMD kernel', () => {
  it('is used by this engine, so that the tests below compare two implementations', () => {
    expect(kernelKind()).toBe('simd')
  })

  it('was compiled from the current kernel.wat', async () => {
    const { kernelBytesSource } = (await import('../../scripts/kernel.mjs' as string)) as {
      kernelBytesSource(): Promise<string>
    }
    expect(readFileSync(new URL('kernel-bytes.ts', import.meta.url), 'utf8')).toBe(await kernelBytesSource())
  })

  it('computes products of rows bit for bit like the plain loops, for any number of rows', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 11 }),
        fc.integer({ min: 1, max: 5 }),
        fc.infiniteStream(fc.float({ min: -4, max: 4, noNaN: true })),
        (rows, eights, stream) => {
          const words = 16 * eights
          const values = Float32Array.from(
            { length: (rows + 1) * words },
            () => stream.next().value as number,
          )
          const results = both(bytesFor(4 * rows * words, 4 * words, 4 * rows)).map(kernel => {
            const { f32 } = layOut(kernel)
            const [matrix, x, out] = [f32(rows * words), f32(words), f32(rows)]
            matrix.view.set(values.subarray(0, rows * words))
            x.view.set(values.subarray(rows * words))
            kernel.dots(matrix.at, rows, 4 * words, x.at, out.at)
            return bits(out.view)
          })
          expect(results[0]).toEqual(results[1])
        },
      ),
    )
  })

  it('computes products of int16 rows exactly', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 9 }),
        fc.integer({ min: 1, max: 3 }),
        fc.infiniteStream(fc.integer({ min: -4096, max: 4096 })),
        (rows, sixteens, stream) => {
          const words = 32 * sixteens
          const values = Int16Array.from({ length: (rows + 1) * words }, () => stream.next().value as number)
          const expected = Array.from({ length: rows }, (_, r) => {
            let sum = 0
            for (let d = 0; d < words; d++) sum += values[r * words + d]! * values[rows * words + d]!
            return sum
          })
          for (const kernel of both(bytesFor(2 * rows * words, 2 * words, 4 * rows))) {
            const { i16, i32 } = layOut(kernel)
            const [matrix, x, out] = [i16(rows * words), i16(words), i32(rows)]
            matrix.view.set(values.subarray(0, rows * words))
            x.view.set(values.subarray(rows * words))
            kernel.dotsI16(matrix.at, rows, 2 * words, x.at, out.at)
            expect(Array.from(out.view)).toEqual(expected)
          }
        },
      ),
    )
  })

  it('computes products and cosines of pairs bit for bit like the plain loops', () => {
    fc.assert(
      fc.property(
        floats(5 * 16),
        floats(7),
        fc.array(fc.tuple(fc.integer({ min: 0, max: 4 }), fc.integer({ min: 0, max: 4 })), {
          minLength: 7,
          maxLength: 7,
        }),
        (values, sums, pairs) => {
          const results = both(bytesFor(320, 28, 28, 28, 56, 40, 28)).map(kernel => {
            const { f32, f64, u32 } = layOut(kernel)
            const [rows, i, j, out, sum, inverse, cosines] = [
              f32(80),
              u32(7),
              u32(7),
              f32(7),
              f64(7),
              f64(5),
              f32(7),
            ]
            rows.view.set(values)
            i.view.set(pairs.map(([a]) => a))
            j.view.set(pairs.map(([, b]) => b))
            sum.view.set(sums)
            inverse.view.set(values.slice(0, 5))
            kernel.pairDots(rows.at, 64, i.at, j.at, 7, out.at)
            kernel.cosines(sum.at, out.at, inverse.at, i.at, j.at, 7, cosines.at)
            return [bits(out.view), bits(cosines.view)]
          })
          expect(results[0]).toEqual(results[1])
        },
      ),
    )
  })

  it('sorts and correlates bit for bit like the plain loops', () => {
    // Few distinct values make ties; small and large ones make one, two and three passes.
    const value = fc.oneof(
      fc.constantFrom(0, -0, 1, -1, 0.5),
      fc.float({ min: Math.fround(0.3), max: 1, noNaN: true }),
      fc.float({ noNaN: true, noDefaultInfinity: true }),
    )
    fc.assert(
      fc.property(
        fc.array(fc.tuple(value, fc.double({ min: -9, max: 9, noNaN: true })), { maxLength: 60 }),
        entries => {
          const n = entries.length
          const results = both(bytesFor(4 * n, 8 * n, 8 * n, 8 * n, SORT_COUNTER_BYTES)).map(kernel => {
            const { f32, f64, u32 } = layOut(kernel)
            const [values, ranks, a, b, counters] = [
              f32(n),
              f64(n),
              u32(2 * n),
              u32(2 * n),
              u32(SORT_COUNTER_BYTES / 4),
            ]
            values.view.set(entries.map(([x]) => x))
            ranks.view.set(entries.map(([, y]) => y))
            const sorted = kernel.sort(values.at, n, a.at, b.at, counters.at)
            const rho = kernel.correlation(sorted, n, ranks.at, 3)
            const squares = kernel.centredRanks(sorted, n, ranks.at)
            return [
              Array.from(new Uint32Array(kernel.buffer, sorted, 2 * n)),
              rho,
              squares,
              Array.from(ranks.view),
            ]
          })
          expect(results[0]).toEqual(results[1])
        },
      ),
      { numRuns: 500 },
    )
  })

  it('weighs counts, scales, adds logs and mixes bytes bit for bit like the plain loops', () => {
    const words = (length: number, max: number) =>
      fc.array(fc.integer({ min: 0, max }), { minLength: length, maxLength: length })
    fc.assert(
      fc.property(
        fc.record({
          counts: words(16, 65_535),
          weights: floats(16, -4, 4),
          logs: words(16, 64_100),
          sums: words(16, 500_000),
          bytes: words(48, 255),
          shares: words(3, 85),
        }),
        ({ counts, weights, logs, sums, bytes, shares }) => {
          const results = both(bytesFor(32, 64, 64, 32, 64, 64, 48, 12, 12, 32)).map(kernel => {
            const { f32, i16, i32, u32 } = layOut(kernel)
            const [staged, weight, out, log, sum, idle, row, which, share, mixed] = [
              i16(16),
              f32(16),
              f32(16),
              i16(16),
              i32(16),
              f32(16),
              u32(12),
              u32(3),
              u32(3),
              i16(16),
            ]
            staged.view.set(counts)
            weight.view.set(weights)
            log.view.set(logs)
            sum.view.set(sums)
            new Uint8Array(kernel.buffer, row.at, 48).set(bytes)
            which.view.set([2, 0, 1])
            share.view.set(shares)
            const squares = kernel.weigh(staged.at, weight.at, out.at, 16)
            kernel.scale(out.at, 16, 1 / 3)
            const unions = [
              kernel.addLogs(sum.at, log.at, 1, idle.at, 16, 1 / 16_384),
              kernel.addLogs(sum.at, log.at, -1, idle.at, 16, 1 / 16_384),
            ]
            kernel.mixBytes(row.at, 16, which.at, share.at, 3, mixed.at)
            return [
              squares,
              bits(out.view),
              unions,
              bits(idle.view),
              Array.from(sum.view),
              Array.from(mixed.view),
            ]
          })
          expect(results[0]).toEqual(results[1])
          expect(results[0]![4]).toEqual(sums)
        },
      ),
    )
  })

  it('computes e^−x to six digits, and exactly 1 at 0', () => {
    const kernel = createKernel(bytesFor(4096, 2048, 4096))
    const { f32, i16, i32 } = layOut(kernel)
    const [sums, logs, idle] = [i32(1024), i16(1024), f32(1024)]
    sums.view.forEach((_, at) => (sums.view[at] = at * 300))
    kernel.addLogs(sums.at, logs.at, 1, idle.at, 1024, 1 / 16_384)
    expect(idle.view[0]).toBe(1)
    idle.view.forEach((chance, at) =>
      expect(Math.abs(chance / Math.exp((-at * 300) / 16_384) - 1)).toBeLessThan(3e-6),
    )
  })

  it('reports its memory limit when asked for more', () => {
    expect(() => createKernel(2 ** 32)).toThrow(/at most 4294901760 bytes/)
  })
})
