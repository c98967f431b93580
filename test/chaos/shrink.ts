/**
 * The shortest schedule that still fails (delta debugging, Zeller and Hildebrandt 2002): parts of the list
 * are left out as long as the rest fails. Reruns cost minutes, so there is a limit.
 */
export interface Shrunk<T> {
  readonly items: readonly T[]
  readonly runs: number
  /** False if the limit ended the search: a shorter list may exist. */
  readonly isMinimal: boolean
}

export async function shrink<T>(
  items: readonly T[],
  fails: (items: readonly T[]) => Promise<boolean>,
  mayRun: (runs: number) => boolean,
): Promise<Shrunk<T>> {
  let runs = 0
  let left = items
  let parts = 2
  const tested = new Set<string>()
  const test = async (some: readonly T[]) => {
    const key = some.map(item => items.indexOf(item)).join()
    if (tested.has(key)) return false
    tested.add(key)
    runs++
    return fails(some)
  }
  while (left.length > 1) {
    const size = Math.ceil(left.length / parts)
    const chunks = Array.from({ length: Math.ceil(left.length / size) }, (_, at) =>
      left.slice(at * size, (at + 1) * size),
    )
    // One part alone, then everything but one part.
    const rests = chunks.map((_, at) => left.filter((_item, index) => Math.floor(index / size) !== at))
    const candidates = [...chunks, ...(parts > 2 ? rests : [])]
    let found: readonly T[] | undefined
    let isAlone = false
    for (const [at, some] of candidates.entries()) {
      if (!mayRun(runs)) return { items: left, runs, isMinimal: false }
      if (some.length === left.length || !(await test(some))) continue
      found = some
      isAlone = at < chunks.length
      break
    }
    if (found !== undefined) {
      left = found
      parts = isAlone ? 2 : Math.max(2, parts - 1)
    } else if (size === 1) break
    else parts = Math.min(left.length, 2 * parts)
  }
  return { items: left, runs, isMinimal: true }
}
