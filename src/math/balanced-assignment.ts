/**
 * Exact balanced assignment: every point goes to one sink, every sink takes at most `capacity` points, and
 * the total cost is minimal. This is a transportation problem. Instead of expanding sinks into slots and
 * solving an N × N assignment (paper §4.3.1), it keeps the residual graph on the K sinks alone, where an edge
 * a → b is the cheapest move of one of a's points to b.
 *
 * Prices make it fast. A point takes the sink with the lowest cost + price; sinks over capacity then move
 * points away along shortest paths, which raises their prices. Any starting prices work; good ones leave few
 * points to move. They come from a similar problem (the previous iteration of K-means), improved by a few
 * rounds in which every sink over capacity raises its own price.
 */
export interface BalancedProblem {
  /** [points × sinks], finite. */
  readonly costs: Float64Array
  readonly points: number
  readonly sinks: number
  readonly capacity: number
}

/**
 * The sink of each point. `prices` (one per sink) are the starting point and are updated to the solution's.
 */
export function assignBalanced(
  problem: BalancedProblem,
  prices: Float64Array = new Float64Array(problem.sinks),
): Int32Array {
  const { points, sinks, capacity } = problem
  if (points > sinks * capacity)
    throw new RangeError(`${points} points do not fit into ${sinks} sinks of ${capacity}`)
  const flow = startFlow(problem, prices)
  const search = createSearch(sinks)
  for (;;) {
    const end = search.run(flow, prices, capacity)
    if (end < 0) return flow.sinkOf.slice(0, points)
    for (let sink = 0; sink < sinks; sink++)
      prices[sink]! += Math.max(0, search.distance[end]! - search.distance[sink]!)
    pushAlong(flow, search.parent, end)
  }
}

/**
 * Which point is in which sink, and the cheapest move between any two sinks. Slots beyond the points are
 * filled with points that cost almost nothing anywhere.
 */
interface Flow {
  readonly costs: Float64Array
  readonly sinks: number
  readonly sinkOf: Int32Array
  readonly members: number[][]
  /** Position of each point in its sink's list. */
  readonly placeOf: Int32Array
  /**
   * [from × to] the point that is cheapest to move from → to, −1 if there is none, and its cost without
   * prices.
   */
  readonly mover: Int32Array
  readonly moveCost: Float64Array
}

function startFlow({ costs, points, sinks, capacity }: BalancedProblem, prices: Float64Array): Flow {
  const slots = sinks * capacity
  const padded = new Float64Array(slots * sinks)
  padded.set(costs)
  tellApart(padded, points * sinks)
  easePrices(padded, slots, sinks, capacity, prices)
  const flow: Flow = {
    costs: padded,
    sinks,
    sinkOf: new Int32Array(slots),
    members: Array.from({ length: sinks }, () => []),
    placeOf: new Int32Array(slots),
    mover: new Int32Array(sinks * sinks).fill(-1),
    moveCost: new Float64Array(sinks * sinks).fill(Infinity),
  }
  for (let point = 0; point < slots; point++) {
    let best = 0
    let bestCost = Infinity
    for (let sink = 0; sink < sinks; sink++) {
      const cost = padded[point * sinks + sink]! + prices[sink]!
      if (cost < bestCost) {
        best = sink
        bestCost = cost
      }
    }
    enter(flow, point, best)
  }
  return flow
}

/**
 * Points with equal costs would move as a group: a price that sends one away sends all of them, and no step
 * below would make progress. So every cost is changed by up to 10⁻¹² of the largest, which is less than the
 * rounding error of a sum.
 */
function tellApart(costs: Float64Array, given: number): void {
  let largest = 0
  for (let at = 0; at < given; at++) largest = Math.max(largest, Math.abs(costs[at]!))
  const step = (largest > 0 ? largest : 1) * 1e-12 * 2 ** -32
  for (let at = 0; at < costs.length; at++) {
    let z = Math.imul(at + 1, 0x9e3779b1)
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad)
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97)
    costs[at]! += ((z ^ (z >>> 15)) >>> 0) * step
  }
}

const EASING_ROUNDS = 8
/** A round that leaves more than this share of the surplus costs more than the moves it saves. */
const WORTHWHILE = 0.7

/**
 * Raises the price of each sink that too many points prefer by just enough that the surplus, the points with
 * the closest alternative, prefers another sink. Rounds continue while the surplus falls fast; each costs
 * points × sinks and does not change the optimum.
 */
function easePrices(
  costs: Float64Array,
  slots: number,
  sinks: number,
  capacity: number,
  prices: Float64Array,
): void {
  const regrets: number[][] = Array.from({ length: sinks }, () => [])
  let surplus = Infinity
  for (let round = 0; round < EASING_ROUNDS; round++) {
    for (const list of regrets) list.length = 0
    for (let point = 0, row = 0; point < slots; point++, row += sinks) {
      let first = 0
      let least = Infinity
      let second = Infinity
      for (let sink = 0; sink < sinks; sink++) {
        const cost = costs[row + sink]! + prices[sink]!
        if (cost < least) {
          second = least
          least = cost
          first = sink
        } else if (cost < second) second = cost
      }
      regrets[first]!.push(second - least)
    }
    const before = surplus
    surplus = regrets.reduce((sum, { length }) => sum + Math.max(0, length - capacity), 0)
    if (surplus === 0 || surplus > WORTHWHILE * before) return
    regrets.forEach((list, sink) => {
      if (list.length > capacity) prices[sink]! += Float64Array.from(list).sort()[list.length - capacity - 1]!
    })
  }
}

function enter(flow: Flow, point: number, sink: number): void {
  const { costs, sinks, mover, moveCost } = flow
  flow.sinkOf[point] = sink
  flow.placeOf[point] = flow.members[sink]!.push(point) - 1
  const row = point * sinks
  for (let to = 0; to < sinks; to++) {
    const cost = costs[row + to]! - costs[row + sink]!
    if (to !== sink && cost < moveCost[sink * sinks + to]!) {
      moveCost[sink * sinks + to] = cost
      mover[sink * sinks + to] = point
    }
  }
}

function leave(flow: Flow, point: number): void {
  const { costs, sinks, mover, moveCost } = flow
  const sink = flow.sinkOf[point]!
  const members = flow.members[sink]!
  const last = members.pop()!
  if (last !== point) {
    members[flow.placeOf[point]!] = last
    flow.placeOf[last] = flow.placeOf[point]!
  }
  for (let to = 0; to < sinks; to++) {
    const edge = sink * sinks + to
    if (mover[edge] !== point) continue
    mover[edge] = -1
    moveCost[edge] = Infinity
    for (const member of members) {
      const cost = costs[member * sinks + to]! - costs[member * sinks + sink]!
      if (cost < moveCost[edge]!) {
        moveCost[edge] = cost
        mover[edge] = member
      }
    }
  }
}

/**
 * Moves one point along each edge of the path that ends at `end`. All leave before any enters, because an
 * edge's mover is one of the old members.
 */
function pushAlong(flow: Flow, parent: Int32Array, end: number): void {
  const moves: { point: number; to: number }[] = []
  for (let to = end; parent[to]! >= 0; to = parent[to]!)
    moves.push({ point: flow.mover[parent[to]! * flow.sinks + to]!, to })
  for (const { point } of moves) leave(flow, point)
  for (const { point, to } of moves) enter(flow, point, to)
}

/**
 * Dijkstra's search from all sinks over capacity to the nearest with room. Distances of unreached sinks are
 * capped at that distance.
 */
function createSearch(sinks: number) {
  const distance = new Float64Array(sinks)
  const parent = new Int32Array(sinks)
  const settled = new Uint8Array(sinks)

  /** The sink with room, or −1 if no sink is over capacity. */
  function run({ members, moveCost }: Flow, prices: Float64Array, capacity: number): number {
    settled.fill(0)
    parent.fill(-1)
    let over = 0
    for (let sink = 0; sink < sinks; sink++) {
      distance[sink] = members[sink]!.length > capacity ? 0 : Infinity
      if (members[sink]!.length > capacity) over++
    }
    if (over === 0) return -1
    for (;;) {
      let at = -1
      for (let sink = 0; sink < sinks; sink++) {
        if (settled[sink] === 0 && (at < 0 || distance[sink]! < distance[at]!)) at = sink
      }
      if (members[at]!.length < capacity) return at
      settled[at] = 1
      for (let to = 0; to < sinks; to++) {
        if (settled[to] === 1) continue
        // below zero only by rounding
        const edge = Math.max(0, moveCost[at * sinks + to]! + prices[to]! - prices[at]!)
        if (distance[at]! + edge < distance[to]!) {
          distance[to] = distance[at]! + edge
          parent[to] = at
        }
      }
    }
  }
  return { distance, parent, run }
}
