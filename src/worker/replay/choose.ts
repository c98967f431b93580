/**
 * Draws the experts of a prompt token so that a long prompt has the counts of the recorded one: each expert
 * is chosen with probability top_k · count / Σ counts, and each draw gives top_k different experts. The
 * probabilities are laid end to end in fixed point and read at a random offset and at every whole unit after
 * it (systematic sampling). No probability exceeds one, so no expert is drawn twice.
 */
import { drawBits } from './fingerprint.ts'

/** Probability 1 in fixed point. */
const UNIT_BITS = 20
const UNIT = 2 ** UNIT_BITS
/** Log2 of the guide’s entries per probability of 1. */
const GUIDE_BITS = 4

/** Tables from which the experts of a row’s tokens are drawn. */
export interface Chances {
  /** [layers][experts] end of each expert’s interval. */
  readonly ends: Uint32Array
  /** [layers][topK << GUIDE_BITS] the expert at each guide entry: where the search starts. */
  readonly guide: Uint16Array
  readonly layers: number
  readonly topK: number
}

/** From counts [layers][experts]. Layers without counts get equal probabilities. */
export function chancesOf(counts: ArrayLike<number>, layers: number, experts: number, topK: number): Chances {
  const ends = new Uint32Array(layers * experts)
  const places = topK << GUIDE_BITS
  const guide = new Uint16Array(layers * places)
  const weights = new Float64Array(experts)
  for (let layer = 0, at = 0; layer < layers; layer++) {
    for (let e = 0; e < experts; e++) weights[e] = counts[layer * experts + e]!
    let sum = 0
    for (const chance of wholeUnits(layerChances(weights, topK), topK)) ends[at++] = sum += chance
    for (let place = 0, e = 0; place < places; place++) {
      while (ends[layer * experts + e]! <= place << (UNIT_BITS - GUIDE_BITS)) e++
      guide[layer * places + place] = e
    }
  }
  return { ends, guide, layers, topK }
}

/**
 * In proportion, but none above one: the excess is given to the others, and to those without counts only if
 * no other expert has room.
 */
function layerChances(weights: Float64Array, topK: number): Float64Array {
  if (weights.filter(weight => weight > 0).length < topK) {
    const most = Math.max(1, ...weights)
    return layerChances(
      weights.map(weight => (weight > 0 ? 1e6 * most : 1)),
      topK,
    )
  }
  const chances = new Float64Array(weights.length)
  for (let certain = 0; ;) {
    let left = 0
    for (let e = 0; e < weights.length; e++) if (chances[e] !== 1) left += weights[e]!
    const scale = left > 0 ? (topK - certain) / left : 0
    const over = weights.findIndex((weight, e) => chances[e] !== 1 && weight * scale > 1)
    if (over < 0) return chances.map((chance, e) => (chance === 1 ? 1 : Math.min(1, weights[e]! * scale)))
    chances[over] = 1
    certain++
  }
}

/**
 * The same in whole units that add up to topK: the rounding remainder goes to experts with a probability
 * between 0 and 1.
 */
function wholeUnits(chances: Float64Array, topK: number): Uint32Array {
  const units = Uint32Array.from(chances, chance => Math.floor(chance * UNIT))
  let left = topK * UNIT - units.reduce((sum, unit) => sum + unit, 0)
  for (let e = 0; left > 0; e = (e + 1) % units.length) {
    const more = chances[e]! > 0 ? Math.min(left, UNIT - units[e]!, 1) : 0
    units[e]! += more
    left -= more
  }
  return units
}

/**
 * Writes the experts of the token with this fingerprint to `out`, [layers][topK], ascending in each layer.
 */
export function chooseExperts(
  { ends, guide, layers, topK }: Chances,
  low: number,
  high: number,
  out: Uint16Array,
): void {
  const experts = ends.length / layers
  const places = topK << GUIDE_BITS
  for (let layer = 0, at = 0; layer < layers; layer++) {
    let place = drawBits(low, high, layer) >>> (32 - UNIT_BITS)
    for (const end = at + topK; at < end; at++, place += UNIT) {
      let expert = guide[layer * places + (place >>> (UNIT_BITS - GUIDE_BITS))]!
      while (ends[layer * experts + expert]! <= place) expert++
      out[at] = expert
    }
  }
}
