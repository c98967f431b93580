/**
 * Returns the known name closest to a misspelt one; undefined if none is close. Ignores case, dashes and
 * underscores.
 */
export function nearest(name: string, known: readonly string[]): string | undefined {
  const plainName = plain(name)
  let best: string | undefined
  let bestDistance = Math.max(1, Math.floor(plainName.length / 3)) + 1
  for (const candidate of known) {
    const distance = distanceOf(plainName, plain(candidate), bestDistance)
    if (distance >= bestDistance) continue
    best = candidate
    bestDistance = distance
  }
  return best
}

const plain = (name: string) => name.replaceAll(/[-_]/g, '').toLowerCase()

/** Damerau–Levenshtein distance, at most `limit`. */
function distanceOf(a: string, b: string, limit: number): number {
  if (Math.abs(a.length - b.length) >= limit) return limit
  let [before, last] = [[] as number[], Array.from({ length: b.length + 1 }, (_, j) => j)]
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1]
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      const least = Math.min(last[j - 1]! + (same ? 0 : 1), last[j]! + 1, row[j - 1]! + 1)
      row.push(swapped ? Math.min(least, before[j - 2]! + 1) : least)
    }
    ;[before, last] = [last, row]
  }
  return Math.min(limit, last[b.length]!)
}
