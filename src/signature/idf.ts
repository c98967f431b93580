/**
 * Number of requests that used each expert of each layer at least once. counts: [requests × cells]; a cell is
 * one expert of one layer.
 */
export function documentFrequency(counts: Uint16Array, cells: number): Uint32Array {
  const df = new Uint32Array(cells)
  for (let from = 0; from < counts.length; from += cells) {
    for (let cell = 0; cell < cells; cell++) if (counts[from + cell]! > 0) df[cell]!++
  }
  return df
}

/**
 * Inverse document frequency, w = log((|C| + 1)/(df + 1)): an expert that every request uses has weight 0
 * (paper §4.2.2, step 2).
 */
export function idfWeights(df: Uint32Array, requests: number): Float32Array {
  return Float32Array.from(df, uses => Math.log((requests + 1) / (uses + 1)))
}
