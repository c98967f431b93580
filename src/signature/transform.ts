/**
 * Transforms from what was captured at prefill to a vector (paper §4.2.3, Fig. 7), and two more on
 * recency-weighted counts.
 */
export const TRANSFORMS = [
  'count',
  'count-idf',
  'sqrt',
  'binary',
  'gate-prob',
  'gate-logit',
  'recent',
  'recent-idf',
] as const
export type TransformName = (typeof TRANSFORMS)[number]

/**
 * The captured quantity that a transform reads. A hand-off carries counts and, if the engine keeps them,
 * recent counts; never gate scores.
 */
export type Source = 'counts' | 'recent' | 'gate-prob' | 'gate-logit'

export interface Transform {
  readonly source: Source
  /** Applied to each value before the weight. */
  readonly shape: 'as-is' | 'sqrt' | 'binary'
  readonly idf: boolean
}

export const TRANSFORM: Readonly<Record<TransformName, Transform>> = {
  count: { source: 'counts', shape: 'as-is', idf: false },
  'count-idf': { source: 'counts', shape: 'as-is', idf: true },
  sqrt: { source: 'counts', shape: 'sqrt', idf: false },
  binary: { source: 'counts', shape: 'binary', idf: false },
  'gate-prob': { source: 'gate-prob', shape: 'as-is', idf: false },
  'gate-logit': { source: 'gate-logit', shape: 'as-is', idf: false },
  recent: { source: 'recent', shape: 'as-is', idf: false },
  'recent-idf': { source: 'recent', shape: 'as-is', idf: true },
}

/** True if a gateway can see the transform's source: gate scores stay inside the engine. */
export function isServable(name: TransformName): boolean {
  return TRANSFORM[name].source === 'counts' || TRANSFORM[name].source === 'recent'
}
