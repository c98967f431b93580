/**
 * The straightforward balanced assignment, as the oracle of the fast one: every sink becomes `capacity`
 * slots, and the Hungarian method (shortest augmenting paths with potentials) solves points against slots.
 * O(points² × slots).
 */
export function assignBySlots(
  costs: ArrayLike<number>,
  points: number,
  sinks: number,
  capacity: number,
): number[] {
  const slots = sinks * capacity
  const cost = (point: number, slot: number) => costs[point * sinks + Math.floor(slot / capacity)]!
  const pointPrice = new Float64Array(points + 1)
  const slotPrice = new Float64Array(slots + 1)
  const pointAt = new Int32Array(slots + 1) // 1-based; 0 is free
  for (let point = 1; point <= points; point++) {
    const least = new Float64Array(slots + 1).fill(Infinity)
    const from = new Int32Array(slots + 1)
    const used = new Uint8Array(slots + 1)
    pointAt[0] = point
    let slot = 0
    do {
      used[slot] = 1
      const at = pointAt[slot]!
      let delta = Infinity
      let next = 0
      for (let other = 1; other <= slots; other++) {
        if (used[other] === 1) continue
        const reduced = cost(at - 1, other - 1) - pointPrice[at]! - slotPrice[other]!
        if (reduced < least[other]!) {
          least[other] = reduced
          from[other] = slot
        }
        if (least[other]! < delta) {
          delta = least[other]!
          next = other
        }
      }
      for (let other = 0; other <= slots; other++) {
        if (used[other] === 1) {
          pointPrice[pointAt[other]!]! += delta
          slotPrice[other]! -= delta
        } else least[other]! -= delta
      }
      slot = next
    } while (pointAt[slot] !== 0)
    while (slot !== 0) {
      pointAt[slot] = pointAt[from[slot]!]!
      slot = from[slot]!
    }
  }
  const sinkOf = Array.from({ length: points }, () => -1)
  for (let slot = 1; slot <= slots; slot++)
    if (pointAt[slot]! > 0) sinkOf[pointAt[slot]! - 1] = Math.floor((slot - 1) / capacity)
  return sinkOf
}
