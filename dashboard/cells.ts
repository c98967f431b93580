/**
 * Experts of workers as shares per cell [layer × expert], and the overlap of two workers. Pure functions on
 * typed arrays.
 */

/** Decodes base64 to bits as 0 and 1, the lowest bit of a byte first. */
export function unpackBits(base64: string, cells: number): Float32Array<ArrayBuffer> {
  const bytes = atob(base64)
  const shares = new Float32Array(cells)
  for (let cell = 0; cell < cells; cell++) shares[cell] = (bytes.charCodeAt(cell >> 3) >> (cell & 7)) & 1
  return shares
}

/** Decodes base64 to bytes in 255ths. */
export function unpackBytes(base64: string, cells: number): Float32Array<ArrayBuffer> {
  const bytes = atob(base64)
  const shares = new Float32Array(cells)
  for (let cell = 0; cell < cells; cell++) shares[cell] = bytes.charCodeAt(cell) / 255
  return shares
}

export function meanOf(looks: readonly Float32Array[], cells: number): Float32Array<ArrayBuffer> {
  const mean = new Float32Array(cells)
  for (const look of looks) for (let cell = 0; cell < cells; cell++) mean[cell]! += look[cell]! / looks.length
  return mean
}

/** Shares of one worker minus the mean of the others: above 0 where it uses an expert more than they do. */
export function againstOthers(all: readonly Float32Array[], which: number): Float32Array<ArrayBuffer> {
  const cells = all[which]!.length
  const others = all.filter((_, at) => at !== which)
  const mean = others.length === 0 ? new Float32Array(cells) : meanOf(others, cells)
  return Float32Array.from(all[which]!, (share, cell) => share - mean[cell]!)
}

/** Σ min / Σ max: 1 for the same experts, 0 for none in common; undefined if neither uses any. */
export function overlap(a: Float32Array, b: Float32Array): number | undefined {
  let [both, either] = [0, 0]
  for (let cell = 0; cell < a.length; cell++) {
    both += Math.min(a[cell]!, b[cell]!)
    either += Math.max(a[cell]!, b[cell]!)
  }
  return either > 0 ? both / either : undefined
}

/** Mean number of active experts per layer. */
export function activePerLayer(shares: Float32Array, layers: number): number {
  return layers === 0 ? 0 : shares.reduce((sum, share) => sum + share, 0) / layers
}
