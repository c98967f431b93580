import { readFileSync } from 'node:fs'
import { gunzipSync } from 'node:zlib'

/** Values computed by NumPy and SciPy in test/golden/numerics/make.py. */
export interface Golden {
  ranks: { name: string; values: number[]; ranks: number[] }[]
  spearman: { name: string; x: number[]; y: number[]; rho: number }[]
  /** If counts are absent, those of `quality` are used. */
  idf: { name: string; requests: number; counts?: number[]; weights: number[] }[]
  quality: {
    requests: number
    layers: number
    experts: number
    top_k: number
    pairs: number
    prefill_counts: number[]
    prompt_tokens: number[]
    decode_counts: number[]
    decode_steps: number[]
    transforms: Record<
      'count' | 'count-idf' | 'sqrt' | 'binary',
      { rho: number; greedy?: { order: number[]; rho: number[]; peak: number } } & Record<string, unknown>
    >
  }
  assignment: {
    name: string
    points: number
    clusters: number
    capacity: number
    costs: number[]
    total: number
  }[]
  pca: { name: string; rows: number; width: number; values: number[]; explained: [number, number] }[]
}

export const golden = JSON.parse(
  gunzipSync(readFileSync(new URL('golden/numerics/numerics.json.gz', import.meta.url))).toString('utf8'),
) as Golden
