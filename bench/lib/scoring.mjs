// Plain JavaScript variants of out[r] = rows[r] · x, which a router computes for every request. rows:
// [out.length × x.length].

/** One loop, one accumulator: each addition waits for the one before it. */
export function flatLoop(rows, x, out) {
  const width = x.length
  for (let r = 0; r < out.length; r++) {
    let dot = 0
    for (let i = 0, at = r * width; i < width; i++, at++) dot += rows[at] * x[i]
    out[r] = dot
  }
}

/** Four accumulators: four additions in flight. Widths are multiples of four. */
export function fourAccumulators(rows, x, out) {
  const width = x.length
  for (let r = 0; r < out.length; r++) {
    let a = 0
    let b = 0
    let c = 0
    let d = 0
    for (let i = 0, at = r * width; i < width; i += 4, at += 4) {
      a += rows[at] * x[i]
      b += rows[at + 1] * x[i + 1]
      c += rows[at + 2] * x[i + 2]
      d += rows[at + 3] * x[i + 3]
    }
    out[r] = a + b + (c + d)
  }
}

/** Four rows at a time: each value of x is loaded once for all of them. Rows are a multiple of four. */
export function fourRows(rows, x, out) {
  const width = x.length
  for (let r = 0; r < out.length; r += 4) {
    const first = r * width
    const second = first + width
    const third = second + width
    const fourth = third + width
    let a = 0
    let b = 0
    let c = 0
    let d = 0
    for (let i = 0; i < width; i++) {
      const value = x[i]
      a += rows[first + i] * value
      b += rows[second + i] * value
      c += rows[third + i] * value
      d += rows[fourth + i] * value
    }
    out[r] = a
    out[r + 1] = b
    out[r + 2] = c
    out[r + 3] = d
  }
}
