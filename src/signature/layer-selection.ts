import type { PairSpace } from './pair-space.ts'

/** Layers in the order of greedy selection, ρ after each, and how many to keep. */
export interface LayerOrder {
  readonly order: number[]
  readonly rho: number[]
  /** N*: where ρ peaks. */
  readonly peak: number
}

/**
 * Greedy layer selection on ρ (paper §4.2.2, step 3): adds the layer that raises ρ most until all layers are
 * ordered, then cuts at the peak. It takes L(L + 1)/2 rank correlations. Ties go to the lowest layer and,
 * between equal peaks, to the one with fewer layers.
 */
export function selectLayers(
  space: PairSpace,
  layers: number,
  onStep?: (done: number, total: number) => void,
): LayerOrder {
  const left = Array.from({ length: layers }, (_, layer) => layer)
  const order: number[] = []
  const rho: number[] = []
  const total = (layers * (layers + 1)) / 2
  let done = 0
  space.clear()
  while (left.length > 0) {
    let best = -1
    let bestRho = -Infinity
    for (const layer of left) {
      const candidate = space.rhoWith(layer)
      if (candidate > bestRho) {
        best = layer
        bestRho = candidate
      }
    }
    done += left.length
    onStep?.(done, total)
    left.splice(left.indexOf(best), 1)
    space.keep(best)
    order.push(best)
    rho.push(bestRho)
  }
  const peak = rho.reduce((at, value, step) => (value > rho[at]! ? step : at), 0) + 1
  return { order, rho, peak }
}
