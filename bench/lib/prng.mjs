// The same generator as in bench/python/prng.py (mulberry32), so that both sides of a comparison use the same
// numbers.

/** Uniform multiples of 2^-24 in [0, 1): exact in float32. */
export function mulberry(seed) {
  let state = seed | 0
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), state | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 8) / 2 ** 24
  }
}

/**
 * [n × k] costs. `uniform`: independent. `skewed`: every point has a preferred cluster at half the cost, and
 * half of the points prefer the first quarter of the clusters, so that full clusters push points away as in
 * balanced k-means.
 */
export function costs(kind, n, k, seed) {
  const random = mulberry(seed)
  const cost = Float64Array.from({ length: n * k }, random)
  if (kind === 'skewed') for (let i = 0; i < n; i++) cost[i * k + Math.floor(square(random()) * k)] -= 0.5
  return cost
}

const square = x => x * x // exact for 24 bits; Math.pow need not be
