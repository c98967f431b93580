/** Predictors for studies: one that caches, and one that knows the truth. */
import type { RoutableRequest } from '../policy/decode-policy.ts'
import type { Predictor } from '../policy/predictor.ts'
import { MAX_CHANCE } from '../policy/union-state.ts'
import type { Replay } from './replay.ts'

/** Requests of a trace are identified by their counts, which are the same array each time. */
type Key = RoutableRequest['counts']

export function cachedPredictor(predictor: Predictor): Predictor {
  const known = new Map<Key, Float32Array | undefined>()
  return {
    cells: predictor.cells,
    chances(request) {
      if (!known.has(request.counts)) known.set(request.counts, predictor.chances(request)?.slice())
      return known.get(request.counts)
    },
  }
}

/** What each request did: the share of its recorded steps that fired each expert. */
export function truePatterns(replay: Replay, features: readonly Omit<RoutableRequest, 'id'>[]): Predictor {
  const cells = replay.layers * replay.experts
  const known = new Map<Key, Float32Array>()
  for (let row = 0; row < replay.rows; row++)
    known.set(features[replay.requestOf[row]!]!.counts, patternOf(replay, row))
  return { cells, chances: request => known.get(request.counts) }
}

function patternOf(
  { layers, experts, wordsPerLayer, wordsPerStep, start, steps, words }: Replay,
  row: number,
): Float32Array {
  const pattern = new Float32Array(layers * experts)
  for (let step = 0, from = start[row]!; step < steps[row]!; step++, from += wordsPerStep) {
    for (let word = 0; word < wordsPerStep; word++) {
      const cell = Math.floor(word / wordsPerLayer) * experts + 32 * (word % wordsPerLayer)
      for (let bits = words[from + word]!; bits !== 0; bits &= bits - 1)
        pattern[cell + 31 - Math.clz32(bits & -bits)]!++
    }
  }
  return pattern.map(count => Math.min(MAX_CHANCE, count / steps[row]!))
}
