/**
 * Slope of a process's memory over its life. The adversary kills processes often, so the lives of all
 * processes in one place are judged together: the median of the slopes between samples of the same life
 * (Theil and Sen), which a few outliers do not move.
 */
import type { ProcessMemory, Snapshot } from './check-quiet.ts'

/** Largest slope. A leak of 1 kB per request shows: a place serves about 200 requests per minute. */
export const MAX_MB_PER_MINUTE = 2
/** Heaps grow to what their load needs. This part of a life is not judged. */
const WARM_UP_MS = 120_000
/** Two samples closer than this say more about the garbage collector than about a leak. */
const MIN_DISTANCE_MS = 120_000
/** Fewer pairs than this are no evidence. */
const MIN_PAIRS = 10

export interface Slope {
  readonly name: string
  readonly mbPerMinute: number
  readonly pairs: number
}

export function memorySlopes(snapshots: readonly Pick<Snapshot, 'atMs' | 'memory'>[]): Slope[] {
  const lives = new Map<string, { atMs: number; bytes: number }[]>()
  const keyOf = ({ name, pid }: ProcessMemory) => `${name} ${pid}`
  for (const { atMs, memory } of snapshots)
    for (const one of memory) {
      const life = lives.get(keyOf(one)) ?? []
      lives.set(keyOf(one), life)
      life.push({ atMs, bytes: one.bytes })
    }
  const slopes = new Map<string, number[]>()
  for (const [key, life] of lives) {
    const name = key.split(' ')[0]!
    const warm = life.filter(({ atMs }) => atMs - life[0]!.atMs >= WARM_UP_MS)
    const found = slopes.get(name) ?? []
    slopes.set(name, found)
    for (const [at, early] of warm.entries())
      for (const late of warm.slice(at + 1))
        if (late.atMs - early.atMs >= MIN_DISTANCE_MS)
          found.push(((late.bytes - early.bytes) / (late.atMs - early.atMs)) * (60_000 / 1e6))
  }
  return [...slopes]
    .filter(([, found]) => found.length >= MIN_PAIRS)
    .map(([name, found]) => ({ name, mbPerMinute: medianOf(found), pairs: found.length }))
}

export function memoryProblems(slopes: readonly Slope[]): [what: string, detail: string][] {
  return slopes
    .filter(({ mbPerMinute }) => mbPerMinute > MAX_MB_PER_MINUTE)
    .map(({ name, mbPerMinute, pairs }) => [
      'memory growth',
      `${name}: ${mbPerMinute.toFixed(2)} MB per minute over ${pairs} pairs of samples, limit ${MAX_MB_PER_MINUTE}`,
    ])
}

function medianOf(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  return (sorted[(sorted.length - 1) >> 1]! + sorted[sorted.length >> 1]!) / 2
}
