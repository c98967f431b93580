/**
 * Searches for the hardest load that still holds: the highest rate of a cluster, the fewest workers for a
 * rate. A search tries one value at a time and is told whether it holds. Several searches run side by side,
 * and the values of one round are probed as one list, so that all cores have work. Holding is assumed to be
 * monotone: noise near the edge moves the result by at most the width of the noise.
 */

/** `hopeless`: it fails, and no easier value would help. */
export type Answer = 'holds' | 'fails' | 'hopeless'

/** A range of values from easy to hard, and how a search moves in it. */
export interface Axis {
  readonly start: number
  readonly easiest: number
  readonly hardest: number
  /** The next value towards one end, never past it; `step` counts the moves from 0. */
  harder(value: number, step: number): number
  easier(value: number, step: number): number
  /** A value between one that holds and one that fails; undefined if they are close enough. */
  between(holds: number, fails: number): number | undefined
}

/**
 * `always`: even the hardest value holds; `never`: not even the easiest does, or the search was told that
 * none would.
 */
export type Edge =
  | { readonly outcome: 'edge'; readonly holds: number; readonly fails: number }
  | { readonly outcome: 'always'; readonly holds: number }
  | { readonly outcome: 'never'; readonly fails: number }

export type Search = Generator<number, Edge, Answer>

/** Brackets the edge from `start` outwards, then bisects. No value is tried twice. */
export function* searchEdge(axis: Axis): Search {
  const first = yield axis.start
  if (first === 'hopeless') return { outcome: 'never', fails: axis.start }
  let [holds, fails] = [axis.start, axis.start]
  const harder = first === 'holds'
  for (let step = 0, answer: Answer = first; answer === first; step++) {
    const at = harder ? holds : fails
    if (harder && at === axis.hardest) return { outcome: 'always', holds }
    if (!harder && at === axis.easiest) return { outcome: 'never', fails }
    const next = harder ? axis.harder(at, step) : axis.easier(at, step)
    answer = yield next
    if (answer === 'hopeless' && !harder) return { outcome: 'never', fails: next }
    if (answer === 'holds') holds = next
    else fails = next
  }
  for (let next = axis.between(holds, fails); next !== undefined; next = axis.between(holds, fails)) {
    if ((yield next) === 'holds') holds = next
    else fails = next
  }
  return { outcome: 'edge', holds, fails }
}

/**
 * Requests per second, to a relative `tolerance`: the value that fails is at most that much above the value
 * that holds. Rates have four digits.
 */
export function rateAxis(range: { start: number; lowest: number; highest: number }, tolerance: number): Axis {
  const readable = (rate: number) => Number(rate.toPrecision(4)) // they appear in tables and on command lines
  const [easiest, hardest] = [readable(range.lowest), readable(range.highest)]
  const within = (rate: number) => Math.min(hardest, Math.max(easiest, readable(rate)))
  return {
    start: within(range.start),
    easiest,
    hardest,
    harder: rate => within(2 * rate),
    easier: rate => within(rate / 2),
    between: (holds, fails) =>
      fails / holds <= 1 + tolerance ? undefined : readable(Math.sqrt(holds * fails)),
  }
}

/**
 * Workers: the value that fails is the lower neighbour of the value that holds. Steps away from the start
 * double: a good start needs one or two.
 */
export function workerAxis(start: number, max: number): Axis {
  return {
    start: Math.min(max, Math.max(1, start)),
    easiest: max,
    hardest: 1,
    harder: (workers, step) => Math.max(1, workers - 2 ** step),
    easier: (workers, step) => Math.min(max, workers + 2 ** step),
    between: (holds, fails) => (holds - fails <= 1 ? undefined : Math.floor((holds + fails) / 2)),
  }
}

/**
 * Runs searches side by side, one round at a time: `probe` gets the next value of each unfinished search, by
 * the search's index.
 */
export async function inRounds(
  searches: readonly Search[],
  probe: (
    queries: readonly { readonly search: number; readonly value: number }[],
  ) => Promise<readonly Answer[]>,
): Promise<Edge[]> {
  const edges: Edge[] = []
  let queries: { search: number; value: number }[] = []
  const take = (search: number, { done, value }: IteratorResult<number, Edge>) => {
    if (done === true) edges[search] = value
    else queries.push({ search, value })
  }
  searches.forEach((search, at) => take(at, search.next()))
  while (queries.length > 0) {
    const answers = await probe(queries)
    const round = queries
    queries = []
    round.forEach(({ search }, at) => take(search, searches[search]!.next(answers[at]!)))
  }
  return edges
}
