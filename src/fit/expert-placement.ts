/**
 * Expert placement for expert-parallel decoders (paper §5, after METRO): for every cluster and layer, experts
 * are taken in descending order of the chance that a decode step activates them and given to the lightest
 * rank with room. So a step's active experts spread evenly over ranks with equal numbers of experts.
 */
export interface ExpertPlacement {
  readonly clusters: number
  readonly layers: number
  readonly experts: number
  readonly ranks: number
  /** Requests per decode step for which activation was estimated. */
  readonly batch: number
  /** [clusters × layers × experts] rank of each expert. */
  readonly rankOf: Uint16Array
  /**
   * [clusters × layers × experts] experts rank by rank, ascending within a rank: slot s belongs to rank
   * ⌊s·ranks/experts⌋.
   */
  readonly order: Uint16Array
  /** Expected active experts on the fullest rank, mean over layers, per cluster. */
  readonly fullest: readonly FullestRank[]
}

/**
 * For one cluster's steps: experts in their own order, one layout for all clusters, this cluster's layout,
 * and the mean over ranks, which is the lower bound.
 */
export interface FullestRank {
  readonly linear: number
  readonly global: number
  readonly own: number
  readonly ideal: number
}

export interface PlacementInput {
  /** Decode patterns [requests × layers × experts] in 255ths. */
  readonly patterns: Uint8Array
  readonly clusterOf: ArrayLike<number>
  readonly clusters: number
  readonly layers: number
  readonly experts: number
  readonly ranks: number
  readonly batch: number
}

export function placeExperts(input: PlacementInput): ExpertPlacement {
  const { clusters, layers, experts, ranks, batch } = input
  if (experts % ranks !== 0)
    throw new RangeError(`${experts} experts do not divide evenly among ${ranks} ranks`)
  const cells = layers * experts
  const activation = expectedActivation(input)
  const everywhere = activation.subarray(clusters * cells)
  const rankOf = new Uint16Array(clusters * cells)
  const order = new Uint16Array(clusters * cells)
  const fullest: FullestRank[] = []
  for (let cluster = 0; cluster < clusters; cluster++) {
    const sums = { linear: 0, global: 0, own: 0, ideal: 0 }
    for (let layer = 0; layer < layers; layer++) {
      const from = cluster * cells + layer * experts
      const own = activation.subarray(from, from + experts)
      const ranksOfLayer = rankOf.subarray(from, from + experts)
      ranksOfLayer.set(spread(own, ranks))
      writeOrder(ranksOfLayer, ranks, order.subarray(from, from + experts))
      const globalRanks = spread(everywhere.subarray(layer * experts, (layer + 1) * experts), ranks)
      sums.linear += heaviest(
        own,
        Uint16Array.from(own, (_, e) => Math.floor((e * ranks) / experts)),
        ranks,
      )
      sums.global += heaviest(own, globalRanks, ranks)
      sums.own += heaviest(own, ranksOfLayer, ranks)
      sums.ideal += own.reduce((a, b) => a + b, 0) / ranks
    }
    fullest.push({
      linear: sums.linear / layers,
      global: sums.global / layers,
      own: sums.own / layers,
      ideal: sums.ideal / layers,
    })
  }
  return { clusters, layers, experts, ranks, batch, rankOf, order, fullest }
}

/**
 * Chance that a step of `batch` requests activates each expert: 1 − (1 − p̄)^batch, where p̄ is the mean
 * pattern of the requests that the batch is drawn from. [clusters + 1 × layers × experts]; the last block is
 * over all requests.
 */
function expectedActivation({
  patterns,
  clusterOf,
  clusters,
  layers,
  experts,
  batch,
}: PlacementInput): Float64Array {
  const cells = layers * experts
  const sums = new Float64Array((clusters + 1) * cells)
  const sizes = new Float64Array(clusters + 1)
  for (let r = 0; r < clusterOf.length; r++) {
    for (const block of [clusterOf[r]!, clusters]) {
      sizes[block]!++
      for (let c = 0, at = block * cells, from = r * cells; c < cells; c++, at++, from++)
        sums[at]! += patterns[from]!
    }
  }
  return sums.map((sum, at) => {
    const size = sizes[Math.floor(at / cells)]!
    return size === 0 ? 0 : 1 - (1 - sum / (255 * size)) ** batch
  })
}

/**
 * Rank of each expert: most active first, each to the lightest rank with room; ties go to the lower expert
 * and the lower rank.
 */
function spread(activation: Float64Array, ranks: number): Uint16Array {
  const room = new Int32Array(ranks).fill(activation.length / ranks)
  const load = new Float64Array(ranks)
  const rankOf = new Uint16Array(activation.length)
  const falling = Array.from(activation, (_, e) => e).sort((a, b) => activation[b]! - activation[a]! || a - b)
  for (const expert of falling) {
    let lightest = -1
    for (let rank = 0; rank < ranks; rank++) {
      if (room[rank]! > 0 && (lightest < 0 || load[rank]! < load[lightest]!)) lightest = rank
    }
    rankOf[expert] = lightest
    load[lightest]! += activation[expert]!
    room[lightest]!--
  }
  return rankOf
}

function writeOrder(rankOf: Uint16Array, ranks: number, order: Uint16Array): void {
  const next = Array.from({ length: ranks }, (_, rank) => (rank * rankOf.length) / ranks)
  rankOf.forEach((rank, expert) => (order[next[rank]!++] = expert))
}

function heaviest(activation: Float64Array, rankOf: Uint16Array, ranks: number): number {
  const load = new Float64Array(ranks)
  rankOf.forEach((rank, expert) => (load[rank]! += activation[expert]!))
  return load.reduce((a, b) => Math.max(a, b))
}
