// Counts in the plugin's format, created once and cached as text, so that a worker adds one string to a
// response. Each variant of a shape prefers its own experts in every layer, so that policies can tell
// variants apart.

/** Cached texts: a benchmark has few prompt lengths, tests have few requests. */
const KEPT = 256

/**
 * The `eldr` object of a prompt, by variant and number of prompt tokens, as JSON.
 * @param {import('./types.ts').CountsShape} shape
 * @returns {(variant: number, tokens: number) => string}
 */
export function countsWriter({ layers, experts, topK, tokens: fixedTokens, variants = 8, seed = 1 }) {
  /** @type {Map<number, string>} */
  const kept = new Map()
  return (variant, promptTokens) => {
    const tokens = Math.min(fixedTokens ?? promptTokens, 65_535) // more would overflow u16 without a shift
    const which = variant % variants
    const key = tokens * variants + which
    let text = kept.get(key)
    if (text === undefined) {
      const counts = makeCounts({ layers, experts, topK, tokens }, seed * 1000 + which)
      text = JSON.stringify(eldrObject({ layers, experts, topK, tokens }, counts))
      if (kept.size === KEPT) kept.clear()
      kept.set(key, text)
    }
    return text
  }
}

/**
 * The `eldr` object of a hand-off. counts: [layers × experts].
 * @param {{layers: number, experts: number, topK: number, tokens: number}} shape
 * @param {Uint16Array} counts
 */
export function eldrObject({ layers, experts, topK, tokens }, counts) {
  const bytes = Buffer.alloc(2 * counts.length)
  for (let i = 0; i < counts.length; i++) bytes.writeUInt16LE(counts[i], 2 * i)
  return {
    v: 1,
    layers,
    experts,
    top_k: topK,
    tokens,
    covered: tokens,
    shift: 0,
    counts: bytes.toString('base64'),
  }
}

/**
 * Counts whose every layer sums to topK × tokens, none above tokens. [layers × experts]
 * @param {{layers: number, experts: number, topK: number, tokens: number}} shape
 * @param {number} seed
 */
export function makeCounts({ layers, experts, topK, tokens }, seed) {
  const random = xorshift(seed)
  const counts = new Uint16Array(layers * experts)
  for (let at = 0; at < counts.length; at += experts) {
    let left = topK * tokens
    const first = random() % experts
    for (let n = 0; left > 0; n++) {
      const e = at + ((first + n) % experts)
      // Decreases from the layer's first expert; the second pass places the remainder.
      const wanted = n < experts ? Math.ceil(left / (4 + (random() % 8))) : left
      const taken = Math.min(wanted, tokens - counts[e])
      counts[e] += taken
      left -= taken
    }
  }
  return counts
}

/** 31-bit integers; similar seeds give different sequences. @param {number} seed */
function xorshift(seed) {
  let state = Math.imul(seed + 1, 0x9e3779b1) | 1
  return () => {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    return state >>> 1
  }
}
