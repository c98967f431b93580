import type { Box } from './svg.ts'

export interface Place {
  readonly x: number
  readonly y: number
}

const ROUNDS = 300

/**
 * Moves labels of equal size apart until their centres are `distance` from each other, close to their places
 * and inside the box.
 */
export function spread(places: readonly Place[], distance: number, box: Box): readonly Place[] {
  const now = places.map(place => ({ ...place }))
  for (let round = 0; round < ROUNDS; round++) {
    let touched = false
    for (let i = 0; i < now.length; i++) {
      for (let j = i + 1; j < now.length; j++) {
        const [a, b] = [now[i]!, now[j]!]
        let [dx, dy] = [b.x - a.x, b.y - a.y]
        const apart = Math.hypot(dx, dy)
        if (apart >= distance - 0.01) continue
        touched = true
        // Labels at the same place move apart in different directions, or three of them would stay in a row.
        if (apart < 1e-6) [dx, dy] = [Math.cos(i * 2.4 + j), Math.sin(i * 2.4 + j)]
        const push = (distance - apart) / 2 / Math.max(apart, 1e-6)
        const [mx, my] = apart < 1e-6 ? [(dx * distance) / 2, (dy * distance) / 2] : [dx * push, dy * push]
        a.x -= mx
        a.y -= my
        b.x += mx
        b.y += my
      }
    }
    for (const one of now) {
      one.x = Math.max(box.left, Math.min(box.right, one.x))
      one.y = Math.max(box.top, Math.min(box.bottom, one.y))
    }
    if (!touched) break
  }
  return now
}
