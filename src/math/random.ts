/**
 * Seeded random numbers: xoshiro128** (Blackman and Vigna), its state filled by splitmix32. The same seed
 * gives the same numbers on every machine, so fits and simulations can be repeated exactly. Not for secrets.
 */
export interface Random {
  /** Uniform in [0, 1), 53 bits. */
  uniform(): number
  /** Uniform integer in [0, n). */
  below(n: number): number
  /** An independent stream: the same label always gives the same one, regardless of earlier draws. */
  fork(label: number): Random
}

/** @example const random = createRandom(7); random.below(6) */
export function createRandom(seed: number): Random {
  const fill = splitmix32(seed)
  let a = fill()
  let b = fill()
  let c = fill()
  let d = fill() | 1 // an all-zero state would never change

  function bits(): number {
    const scrambled = Math.imul(b, 5)
    const result = Math.imul((scrambled << 7) | (scrambled >>> 25), 9)
    const t = b << 9
    c ^= a
    d ^= b
    b ^= c
    a ^= d
    c ^= t
    d = (d << 11) | (d >>> 21)
    return result >>> 0
  }
  const uniform = () => (bits() * 0x200000 + (bits() >>> 11)) / 2 ** 53

  return {
    uniform,
    below: n => Math.floor(uniform() * n),
    fork: label => createRandom(splitmix32(splitmix32(seed)() ^ Math.imul(label + 1, 0x9e3779b1))()),
  }
}

function splitmix32(seed: number): () => number {
  // Seeds beyond 32 bits keep their upper part, so 2^32 + 1 and 1 differ.
  let state = (seed ^ Math.imul(Math.floor(seed / 2 ** 32), 0x85ebca6b)) | 0
  return () => {
    state = (state + 0x9e3779b9) | 0
    let z = state ^ (state >>> 16)
    z = Math.imul(z, 0x21f0aaad)
    z ^= z >>> 15
    z = Math.imul(z, 0x735a2d97)
    return (z ^ (z >>> 15)) >>> 0
  }
}
