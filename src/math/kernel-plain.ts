import type { Kernel } from './kernel.ts'

/**
 * The kernel in plain JavaScript, for engines without WebAssembly SIMD and as the oracle of kernel.wat. Sums
 * are kept in single precision in eight lanes, as in the SIMD loops, so both give the same bits and an
 * artifact does not depend on the machine.
 */
export function plainKernel(buffer: ArrayBuffer): Kernel {
  const f32 = new Float32Array(buffer)
  const f64 = new Float64Array(buffer)
  const u32 = new Uint32Array(buffer)
  const i32 = new Int32Array(buffer)
  const i16 = new Int16Array(buffer)
  const u16 = new Uint16Array(buffer)
  const u8 = new Uint8Array(buffer)
  const round = Math.fround

  /** a and b are word positions, not bytes. */
  function dot(a: number, b: number, words: number): number {
    let s0 = 0,
      s1 = 0,
      s2 = 0,
      s3 = 0,
      s4 = 0,
      s5 = 0,
      s6 = 0,
      s7 = 0
    for (const end = a + words; a < end; a += 8, b += 8) {
      s0 = round(s0 + round(f32[a]! * f32[b]!))
      s1 = round(s1 + round(f32[a + 1]! * f32[b + 1]!))
      s2 = round(s2 + round(f32[a + 2]! * f32[b + 2]!))
      s3 = round(s3 + round(f32[a + 3]! * f32[b + 3]!))
      s4 = round(s4 + round(f32[a + 4]! * f32[b + 4]!))
      s5 = round(s5 + round(f32[a + 5]! * f32[b + 5]!))
      s6 = round(s6 + round(f32[a + 6]! * f32[b + 6]!))
      s7 = round(s7 + round(f32[a + 7]! * f32[b + 7]!))
    }
    return round(round(round(s0 + s4) + round(s2 + s6)) + round(round(s1 + s5) + round(s3 + s7)))
  }

  return {
    buffer,

    dots(rows, count, strideBytes, x, out) {
      const words = strideBytes / 4
      for (let r = 0; r < count; r++) f32[out / 4 + r] = dot(rows / 4 + r * words, x / 4, words)
    },

    dotsI16(rows, count, strideBytes, x, out) {
      for (let r = 0; r < count; r++) {
        let sum = 0
        for (let a = (rows + r * strideBytes) / 2, b = x / 2, end = b + strideBytes / 2; b < end; a++, b++)
          sum += i16[a]! * i16[b]!
        i32[out / 4 + r] = sum
      }
    },

    pairDots(rows, strideBytes, i, j, count, out) {
      const words = strideBytes / 4
      for (let p = 0; p < count; p++)
        f32[out / 4 + p] = dot(rows / 4 + u32[i / 4 + p]! * words, rows / 4 + u32[j / 4 + p]! * words, words)
    },

    cosines(sums, dots, inverse, i, j, count, out) {
      for (let p = 0; p < count; p++) {
        f32[out / 4 + p] =
          (f64[sums / 8 + p]! + f32[dots / 4 + p]!) *
          f64[inverse / 8 + u32[i / 4 + p]!]! *
          f64[inverse / 8 + u32[j / 4 + p]!]!
      }
    },

    /**
     * LSD radix sort on the bits of the floats. Only bits that differ are sorted: cosines span few exponents,
     * so two passes are enough.
     */
    sort(values, count, a, b, counters) {
      const keys = u32.subarray(values / 4, values / 4 + count)
      let low = 0xffffffff
      let high = 0
      for (let p = 0; p < count; p++) {
        const bits = i32[values / 4 + p]!
        keys[p] = bits === -0x80000000 ? 0x80000000 : bits ^ ((bits >> 31) | 0x80000000) // −0 counts as +0
        low = Math.min(low, keys[p]!)
        high = Math.max(high, keys[p]!)
      }
      for (let p = 0; p < count; p++) {
        keys[p]! -= low
        u32[a / 4 + 2 * p] = p
        u32[a / 4 + 2 * p + 1] = keys[p]!
      }
      const significantBits = 32 - Math.clz32((high - low) | 0)
      const passes = Math.max(1, Math.ceil(significantBits / 12))
      const digitBits = Math.ceil(significantBits / passes)
      const mask = (1 << digitBits) - 1
      const starts = u32.subarray(counters / 4, counters / 4 + mask + 1)
      for (let shift = 0; shift < significantBits; shift += digitBits) {
        starts.fill(0)
        for (let p = 0; p < count; p++) starts[(keys[p]! >>> shift) & mask]!++
        let total = 0
        for (let d = 0; d <= mask; d++) {
          const tally = starts[d]!
          starts[d] = total
          total += tally
        }
        for (let p = 0; p < count; p++) {
          const key = u32[a / 4 + 2 * p + 1]!
          const to = b / 4 + 2 * starts[(key >>> shift) & mask]!++
          u32[to] = u32[a / 4 + 2 * p]!
          u32[to + 1] = key
        }
        ;[a, b] = [b, a]
      }
      return a
    },

    centredRanks(sorted, count, out) {
      const key = (p: number) => u32[sorted / 4 + 2 * p + 1]
      let squares = 0
      for (let from = 0, to = 0; from < count; from = to) {
        do to++
        while (to < count && key(to) === key(from))
        const rank = 0.5 * (from + 1 + to) - 0.5 * (count + 1)
        squares += (to - from) * (rank * rank)
        for (let p = from; p < to; p++) f64[out / 8 + u32[sorted / 4 + 2 * p]!] = rank
      }
      return squares
    },

    /**
     * Ranks are positions, since the other side's ranks sum to 0. Tied values share the mean of their ranks,
     * which rises by a half for the whole run when the run gets one longer; t of them reduce the sum of
     * squares by (t³ − t)/12.
     */
    correlation(sorted, count, centredRanks, squares) {
      let product = 0
      let tied = 0
      let sum = 0
      let run = 0
      for (let p = 0; p < count; p++) {
        const entry = sorted / 4 + 2 * p
        const c = f64[centredRanks / 8 + u32[entry]!]!
        if (p === 0 || u32[entry + 1] !== u32[entry - 1]) {
          product += p * c
          sum = c
          run = 1
        } else {
          product += 0.5 * sum + c * (p - 0.5 * run)
          tied += 3 * (run * (run + 1))
          sum += c
          run += 1
        }
      }
      const own = (count * (count * count - 1) - tied) / 12
      return own * squares <= 0 ? 0 : product / Math.sqrt(own * squares)
    },

    weigh(counts, weights, out, count) {
      const sums = new Float32Array(8)
      for (let c = 0; c < count; c++) {
        const value = round(u16[counts / 2 + c]! * f32[weights / 4 + c]!)
        f32[out / 4 + c] = value
        sums[c % 8] = round(sums[c % 8]! + round(value * value))
      }
      return laneSum(sums.map((sum, lane) => (lane < 4 ? round(sum + sums[lane + 4]!) : 0)))
    },

    scale(x, count, factor) {
      const by = round(factor)
      for (let at = x / 4; at < x / 4 + count; at++) f32[at] = f32[at]! * by
    },

    addLogs(sums, logs, sign, idle, count, step) {
      const busy = new Float32Array(4)
      const scale = round(round(step) * round(-Math.LOG2E))
      for (let c = 0; c < count; c++) {
        const sum = (i32[sums / 4 + c]! + sign * u16[logs / 2 + c]!) | 0
        i32[sums / 4 + c] = sum
        const x = Math.max(round(round(sum) * scale), -126)
        const f = round(x - Math.floor(x))
        const power = POWERS_OF_TWO.reduce((y, coefficient) => round(round(y * f) + coefficient), 0)
        const chance = round(power * 2 ** Math.floor(x))
        f32[idle / 4 + c] = chance
        busy[c % 4] = round(busy[c % 4]! + round(1 - chance))
      }
      return laneSum(busy)
    },

    mixBytes(rows, strideBytes, which, weights, count, out) {
      for (let cell = 0; cell < strideBytes; cell++) {
        let sum = 0
        for (let n = 0; n < count; n++)
          sum += (u32[weights / 4 + n]! & 255) * u8[rows + u32[which / 4 + n]! * strideBytes + cell]!
        u16[out / 2 + cell] = sum
      }
    },
  }
}

/** Lanes (0 + 2) + (1 + 3), as the SIMD loops add them. */
function laneSum(lanes: Float32Array): number {
  return Math.fround(Math.fround(lanes[0]! + lanes[2]!) + Math.fround(lanes[1]! + lanes[3]!))
}

/**
 * 2^f for f in [0, 1), highest power first: a polynomial with minimal relative error that is exactly 1 at 0.
 */
const POWERS_OF_TWO = [
  0.0018775766948238015, 0.00898933969438076, 0.05582631826400757, 0.24015361070632935, 0.6931530833244324, 1,
].map(Math.fround)
