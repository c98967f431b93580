import { readFileSync } from 'node:fs'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createRandom } from '../../math/random.ts'
import { exp } from './kernel-plain.ts'
import { createTinyKernel, PANEL, type TinyKernel, tinyKernelKind } from './kernel.ts'

const BYTES = 1 << 20
const kernels = [createTinyKernel(BYTES, 'simd'), createTinyKernel(BYTES, 'plain')] as const

/**
 * Runs the same on both kernels with the same inputs; returns the bits that each leaves in `words` words at
 * `out`.
 */
function bitsOf(
  seed: number,
  out: number,
  words: number,
  run: (kernel: TinyKernel, u32: Uint32Array) => void,
): Uint32Array[] {
  return kernels.map(kernel => {
    const random = createRandom(seed)
    const f32 = new Float32Array(kernel.buffer)
    for (let i = 0; i < 65_536; i++) f32[i] = (random.uniform() - 0.5) * 2 ** (8 * random.uniform() - 4)
    run(kernel, new Uint32Array(kernel.buffer))
    return new Uint32Array(kernel.buffer, out, words).slice()
  })
}

const W = 1 << 14
const OUT = 3 << 16
const seeds = fc.integer({ min: 0, max: 1e6 })

describe('the SIMD kernel of the model', () => {
  it('exists and was compiled from the current kernel.wat', async () => {
    expect(tinyKernelKind()).toBe('simd')
    const { kernelBytesSource } = (await import('../../../scripts/kernel.mjs' as string)) as {
      kernelBytesSource(folder: string): Promise<string>
    }
    expect(readFileSync(new URL('kernel-bytes.ts', import.meta.url), 'utf8')).toBe(
      await kernelBytesSource('worker/tiny'),
    )
  })

  it('multiplies bit for bit like the plain one, and each row independently', () => {
    fc.assert(
      fc.property(
        seeds,
        fc.integer({ min: 0, max: 11 }),
        fc.constantFrom(2, 32, 64, 192),
        fc.constantFrom(32, 96, 192),
        (seed, rows, k, n) => {
          const all = bitsOf(seed, OUT, rows * n + 1, kernel => kernel.matmul(0, rows, k, W, n, OUT))
          expect(all[0]!.subarray(0, rows * n)).toEqual(all[1]!.subarray(0, rows * n))
          for (let row = 0; row < rows; row++) {
            const alone = bitsOf(seed, OUT, n, kernel => kernel.matmul(4 * row * k, 1, k, W, n, OUT))
            expect(alone[0]).toEqual(all[0]!.subarray(row * n, (row + 1) * n))
          }
        },
      ),
      { numRuns: 40 },
    )
    expect(PANEL).toBe(32)
  })

  it('multiplies correctly', () => {
    const [kernel] = kernels
    const f32 = new Float32Array(kernel.buffer)
    const [rows, k, n] = [7, 64, 96]
    bitsOf(1, 0, 1, () => {})
    kernel.matmul(0, rows, k, W, n, OUT)
    for (let row = 0; row < rows; row++) {
      for (let o = 0; o < n; o++) {
        let sum = 0
        for (let i = 0; i < k; i++)
          sum += f32[row * k + i]! * f32[W / 4 + Math.floor(o / 32) * k * 32 + i * 32 + (o % 32)]!
        expect(f32[OUT / 4 + row * n + o]).toBeCloseTo(sum, 3)
      }
    }
  })

  it('computes attention bit for bit like the plain one, for any length and row addresses', () => {
    fc.assert(
      fc.property(seeds, fc.integer({ min: 1, max: 70 }), fc.constantFrom(16, 64), (seed, length, width) => {
        const order = createRandom(seed)
        const places = Array.from({ length: 72 }, () => order.below(100) * 512)
        const bits = bitsOf(seed, OUT, 2 * width, (kernel, u32) => {
          u32.set(places, (1 << 18) / 4)
          kernel.attend(1 << 12, width, 1 << 18, length, W, W + 256, 0.125, 1 << 19, OUT)
        })
        expect(bits[0]!.some(word => word !== 0)).toBe(true)
        expect(bits[0]).toEqual(bits[1])
        // Positions after the last one have no effect.
        const longer = bitsOf(seed, OUT, 2 * width, (kernel, u32) => {
          u32.set(
            [...places.slice(0, length), ...places.slice(length).map(place => place ^ 512)],
            (1 << 18) / 4,
          )
          kernel.attend(1 << 12, width, 1 << 18, length, W, W + 256, 0.125, 1 << 19, OUT)
        })
        expect(longer[0]).toEqual(bits[0])
      }),
      { numRuns: 60 },
    )
  })

  it('computes the other functions bit for bit like the plain one', () => {
    fc.assert(
      fc.property(seeds, fc.integer({ min: 1, max: 9 }), (seed, rows) => {
        const list = (u32: Uint32Array) =>
          u32.set(
            Array.from({ length: rows }, (_, i) => (i * 5 + seed) % 11),
            (1 << 18) / 4,
          )
        const results = [
          bitsOf(seed, OUT, rows * 192, kernel => kernel.norm(0, rows, 192, W, 1e-6, OUT)),
          bitsOf(
            seed,
            0,
            rows * 512,
            (kernel, u32) => (list(u32), kernel.normTurn(0, rows, 2048, 4, 64, W, 1e-6, 1 << 18, W + 256)),
          ),
          bitsOf(seed, 0, rows * 64, kernel => kernel.softmax(0, rows, 64, 1.25)),
          bitsOf(
            seed,
            OUT,
            rows * 64,
            (kernel, u32) => (list(u32), kernel.gather(0, 1 << 18, rows, 256, OUT)),
          ),
          bitsOf(seed, OUT, rows * 32, kernel => kernel.gatedUnit(0, rows, 32, OUT)),
          bitsOf(
            seed,
            W,
            11 * 192,
            (kernel, u32) => (list(u32), kernel.addScaled(0, 1 << 18, 4096, rows, 192, W)),
          ),
          bitsOf(seed, 0, 96, kernel => kernel.add(0, W, 96)),
        ]
        for (const [simd, plain] of results) {
          expect(simd!.some(bits => bits !== 0)).toBe(true)
          expect(simd).toEqual(plain)
        }
      }),
      { numRuns: 40 },
    )
  })

  it('computes e^x to seven digits, and 0 on underflow', () => {
    fc.assert(
      fc.property(fc.float({ min: -87, max: 88, noNaN: true }), x => {
        expect(Math.abs(exp(x) / Math.exp(x) - 1)).toBeLessThan(2e-7)
      }),
      { numRuns: 2_000 },
    )
    expect([exp(0), exp(-87.1), exp(-Infinity), exp(200) === exp(88)]).toEqual([1, 0, 0, true])
  })
})
