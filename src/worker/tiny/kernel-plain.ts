import type { TinyKernel } from './kernel.ts'

/**
 * The kernel in plain JavaScript, for runtimes without WebAssembly SIMD and as reference for kernel.wat.
 * Every product and sum is rounded to single precision in the order of the SIMD loops, so both give the same
 * bits.
 */
export function plainTinyKernel(buffer: ArrayBuffer): TinyKernel {
  const f32 = new Float32Array(buffer)
  const u32 = new Uint32Array(buffer)
  const round = Math.fround
  const lanes = new Float32Array(4)
  /** Lane l holds the sum of elements l, l + 4, … */
  const lanesSum = () => round(round(lanes[0]! + lanes[2]!) + round(lanes[1]! + lanes[3]!))

  function inverseNorm(x: number, width: number, eps: number): number {
    lanes.fill(0)
    for (let i = 0; i < width; i++) lanes[i & 3] = lanes[i & 3]! + round(f32[x + i]! * f32[x + i]!)
    return round(1 / round(Math.sqrt(round(round(lanesSum() / width) + round(eps)))))
  }

  function scaled(x: number, width: number, weight: number, factor: number, out: number): void {
    for (let i = 0; i < width; i++) f32[out + i] = f32[weight + i]! * round(f32[x + i]! * factor)
  }

  function turn(x: number, half: number, table: number): void {
    for (let i = 0; i < half; i++) {
      const [u, v, cos, sin] = [f32[x + i]!, f32[x + half + i]!, f32[table + i]!, f32[table + half + i]!]
      f32[x + i] = round(u * cos) - round(v * sin)
      f32[x + half + i] = round(v * cos) + round(u * sin)
    }
  }

  function expSum(x: number, count: number, scale: number): number {
    let max = -Infinity
    for (let i = 0; i < count; i++) max = Math.max(max, f32[x + i]!)
    lanes.fill(0)
    for (let i = 0; i < count; i++) {
      const e = exp(round(round(f32[x + i]! - max) * round(scale)))
      f32[x + i] = e
      lanes[i & 3] = lanes[i & 3]! + e
    }
    return lanesSum()
  }

  /** q, k: word indices. */
  function dot(q: number, k: number, width: number): number {
    let a = 0,
      b = 0,
      c = 0,
      d = 0
    for (let i = 0; i < width; i += 4) {
      a = round(a + round(f32[q + i]! * f32[k + i]!))
      b = round(b + round(f32[q + i + 1]! * f32[k + i + 1]!))
      c = round(c + round(f32[q + i + 2]! * f32[k + i + 2]!))
      d = round(d + round(f32[q + i + 3]! * f32[k + i + 3]!))
    }
    return round(round(a + c) + round(b + d))
  }

  function attendOne(
    q: number,
    width: number,
    rows: number,
    length: number,
    keys: number,
    values: number,
    scale: number,
    s: number,
    out: number,
  ) {
    const padded = Math.ceil(length / 4) * 4
    for (let p = 0; p < padded; p++)
      f32[s + p] = p < length ? dot(q, keys + u32[rows + p]! / 4, width) : -Infinity
    const sum = expSum(s, padded, scale)
    f32.fill(0, out, out + width)
    for (let p = 0; p < length; p++) {
      const [value, weight] = [values + u32[rows + p]! / 4, f32[s + p]!]
      for (let i = 0; i < width; i++) f32[out + i] = f32[out + i]! + round(weight * f32[value + i]!)
    }
    for (let i = 0; i < width; i++) f32[out + i] = f32[out + i]! / sum
  }

  return {
    buffer,

    matmul(x, rows, k, w, n, y) {
      const sums = new Float32Array(32)
      for (let panel = 0; panel < n; panel += 32) {
        for (let row = 0; row < rows; row++) {
          sums.fill(0)
          let at = w / 4 + panel * k
          for (let i = x / 4 + row * k, end = i + k; i < end; i++) {
            const factor = f32[i]!
            for (let o = 0; o < 32; o++, at++) sums[o] = sums[o]! + round(factor * f32[at]!)
          }
          f32.set(sums, y / 4 + row * n + panel)
        }
      }
    },

    norm(x, rows, width, weight, eps, out) {
      for (let row = 0, at = x / 4, to = out / 4; row < rows; row++, at += width, to += width) {
        scaled(at, width, weight / 4, inverseNorm(at, width, eps), to)
      }
    },

    normTurn(x, rows, strideBytes, heads, width, weight, eps, positions, turns) {
      for (let row = 0; row < rows; row++) {
        const table = turns / 4 + u32[positions / 4 + row]! * width
        for (let head = 0, at = (x + row * strideBytes) / 4; head < heads; head++, at += width) {
          scaled(at, width, weight / 4, inverseNorm(at, width, eps), at)
          turn(at, width / 2, table)
        }
      }
    },

    softmax(x, rows, count, scale) {
      for (let row = 0, at = x / 4; row < rows; row++) {
        const sum = expSum(at, count, scale)
        for (const end = at + count; at < end; at++) f32[at] = f32[at]! / sum
      }
    },

    attend(q, width, rows, length, keys, values, scale, scores, out) {
      const second = Math.ceil(length / 4) * 4
      attendOne(q / 4, width, rows / 4, length, keys / 4, values / 4, scale, scores / 4, out / 4)
      attendOne(
        q / 4 + width,
        width,
        rows / 4,
        length,
        keys / 4,
        values / 4,
        scale,
        scores / 4 + second,
        out / 4 + width,
      )
    },

    gather(from, which, count, bytes, out) {
      for (let i = 0; i < count; i++) {
        const at = (from + u32[which / 4 + i]! * bytes) / 4
        f32.copyWithin((out + i * bytes) / 4, at, at + bytes / 4)
      }
    },

    gatedUnit(x, rows, width, out) {
      for (let row = 0, at = x / 4, to = out / 4; row < rows; row++, at += width) {
        for (const end = at + width; at < end; at++, to++) {
          const gate = f32[at]!
          f32[to] = round(gate / round(1 + exp(-gate))) * f32[at + width]!
        }
      }
    },

    addScaled(x, which, factors, rows, width, out) {
      for (let row = 0, at = x / 4; row < rows; row++) {
        const factor = f32[factors / 4 + row]!
        let to = out / 4 + u32[which / 4 + row]! * width
        for (const end = at + width; at < end; at++, to++) f32[to] = f32[to]! + round(factor * f32[at]!)
      }
    },

    add(x, y, count) {
      for (let i = x / 4, j = y / 4, end = i + count; i < end; i++, j++) f32[i] = f32[i]! + f32[j]!
    },
  }
}

const LOG2_E = Math.fround(1.44269504)
const LN2_LOW = Math.fround(-2.1219444e-4)
const POLYNOMIAL = Float32Array.of(
  1.98756915e-4,
  1.3981999507e-3,
  8.3334519073e-3,
  4.1665795894e-2,
  1.6666665459e-1,
  5.0000001201e-1,
)
/** Adding it to a number below 2^22 rounds to integers, half to even. */
const WHOLE = 12_582_912

/** e^x in single precision: relative error below 2·10⁻⁷, exactly 0 below −87; inputs above 88 are clamped. */
export function exp(given: number): number {
  if (given < -87) return 0
  const round = Math.fround
  let x = Math.min(88, given)
  const n = round(round(round(x * LOG2_E) + WHOLE) - WHOLE)
  x = round(x - round(n * 0.693359375))
  x = round(x - round(n * LN2_LOW))
  let p = POLYNOMIAL[0]!
  for (let i = 1; i < POLYNOMIAL.length; i++) p = round(round(p * x) + POLYNOMIAL[i]!)
  p = round(round(round(p * x) * x) + x)
  return round(round(p + 1) * 2 ** n)
}
