/**
 * The sums of `union` for one worker, small enough to be sent many times per second: S of each cell as one
 * byte, q = 64·√S, so that steps are finest where e^−S changes most. Rows are complete and not differences:
 * the next row makes up for a lost one, nothing drifts, and a worker without requests is all zeros, which
 * take three bytes.
 */
import { Malformed } from './bytes.ts'

/** (2q)² is S in the units of union-state.ts, 1/16,384, and so an integer. */
const MAX_Q = 255

export function quantise(sums: Int32Array, out = new Uint8Array(sums.length)): Uint8Array {
  for (let c = 0; c < sums.length; c++) {
    const sum = sums[c]!
    const q = sum <= 0 ? 0 : Math.round(Math.sqrt(sum) / 2)
    out[c] = q > MAX_Q ? MAX_Q : q
  }
  return out
}

/** What to add to sums that contain `before`, so that they contain `after` instead. */
export function difference(
  before: Uint8Array | undefined,
  after: Uint8Array | undefined,
  cells: number,
): Int32Array {
  const delta = new Int32Array(cells)
  for (let c = 0; c < cells; c++) {
    const [was, is] = [before?.[c] ?? 0, after?.[c] ?? 0]
    delta[c] = 4 * (is * is - was * was)
  }
  return delta
}

/**
 * Run-length encodes zeros: a 0 is followed by the number of further zeros, LEB128. Written without a
 * ByteWriter for speed.
 */
export function packRow(row: Uint8Array): Buffer {
  const out = Buffer.allocUnsafe(2 * row.length + 8)
  let size = 0
  for (let c = 0; c < row.length; c++) {
    const value = row[c]!
    out[size++] = value
    if (value !== 0) continue
    const first = c
    while (c + 1 < row.length && row[c + 1] === 0) c++
    let more = c - first
    for (; more >= 128; more >>>= 7) out[size++] = 128 | (more & 127)
    out[size++] = more
  }
  return out.subarray(0, size)
}

/** Throws Malformed if it is not a row of this many cells. */
export function unpackRow(bytes: Buffer, cells: number): Uint8Array {
  const row = new Uint8Array(cells)
  let c = 0
  let at = 0
  while (at < bytes.length) {
    const value = bytes[at++]!
    if (c >= cells) throw new Malformed('a row is too long')
    row[c++] = value
    if (value !== 0) continue
    for (let scale = 1; ; scale *= 128) {
      if (at >= bytes.length || scale > cells) throw new Malformed('a run of zeros is invalid')
      const byte = bytes[at++]!
      c += (byte & 127) * scale
      if (byte < 128) break
    }
  }
  if (c !== cells) throw new Malformed('a row is too short or too long')
  return row
}
