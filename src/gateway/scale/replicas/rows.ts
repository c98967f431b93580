/**
 * What `union` knows of one worker's requests, small enough to be told many times a second: S of each cell as one byte, q = 64·√S, so that
 * steps are finest where e^−S changes most. Rows are whole and not differences: what was lost heals with the next one, nothing drifts, and
 * a worker without requests is all zeros again. One that nobody is on takes three bytes.
 */
import { Malformed } from './bytes.ts'

/** 2q squared is S in the steps of union-state.ts, 1/16,384, and so a whole number. */
const MOST = 255

export function quantised(sums: Int32Array, out = new Uint8Array(sums.length)): Uint8Array {
  for (let c = 0; c < sums.length; c++) {
    const sum = sums[c]!
    const q = sum <= 0 ? 0 : Math.round(Math.sqrt(sum) / 2)
    out[c] = q > MOST ? MOST : q
  }
  return out
}

/** What has to be added to sums in which `before` is, so that `after` is in them instead. */
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

/** Zeros come in runs: a 0 is followed by how many more there are, seven bits a byte. Rows are long, so that bytes are written one by one. */
export function packed(row: Uint8Array): Buffer {
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

/** Throws Malformed when it is not a row of so many cells. */
export function unpacked(bytes: Buffer, cells: number): Uint8Array {
  const row = new Uint8Array(cells)
  let c = 0
  let at = 0
  while (at < bytes.length) {
    const value = bytes[at++]!
    if (c >= cells) throw new Malformed('a row is too long')
    row[c++] = value
    if (value !== 0) continue
    for (let scale = 1; ; scale *= 128) {
      if (at >= bytes.length || scale > cells) throw new Malformed('a run of zeros is broken')
      const byte = bytes[at++]!
      c += (byte & 127) * scale
      if (byte < 128) break
    }
  }
  if (c !== cells) throw new Malformed('a row is too short or too long')
  return row
}
