/**
 * Which rank of an expert-parallel decode worker holds which expert, as bit masks over the words of a step.
 */
export interface PlacementSpec {
  /**
   * [blocks × layers × experts] rank of each expert. One block serves all workers; with several, decode
   * worker w uses block w, its cluster's.
   */
  readonly rankOf: Uint16Array
}

/** Experts in their own order, the same number on each rank (the last may have fewer). */
export function linearRanks(layers: number, experts: number, ranks: number): Uint16Array {
  const perRank = Math.ceil(experts / ranks)
  return Uint16Array.from({ length: layers * experts }, (_, at) => Math.floor((at % experts) / perRank))
}

/** The block of one decode worker. */
export function ranksOfWorker({ rankOf }: PlacementSpec, cells: number, worker: number): Uint16Array {
  const blocks = rankOf.length / cells
  if (!Number.isInteger(blocks) || blocks === 0)
    throw new RangeError(`a placement of ${rankOf.length} ranks for ${cells} experts of all layers`)
  if (blocks > 1 && worker >= blocks)
    throw new RangeError(`a placement for ${blocks} clusters has none for decode worker ${worker}`)
  const block = blocks === 1 ? 0 : worker
  return rankOf.subarray(block * cells, (block + 1) * cells)
}

/** [ranks][layers × ⌈experts/32⌉] bits of the experts on each rank. */
export function rankMasks(rankOf: Uint16Array, layers: number, experts: number, ranks: number): Int32Array {
  const wordsPerLayer = Math.ceil(experts / 32)
  const width = layers * wordsPerLayer
  const masks = new Int32Array(ranks * width)
  rankOf.forEach((rank, at) => {
    if (rank >= ranks) throw new RangeError(`rank ${rank} in a placement for ${ranks} ranks`)
    const [layer, expert] = [Math.floor(at / experts), at % experts]
    masks[rank * width + layer * wordsPerLayer + (expert >> 5)]! |= 1 << (expert & 31)
  })
  return masks
}
