import type { TransformName } from '../signature/transform.ts'

/**
 * What one fit found, as plain data: the terminal tables, `--json` and the HTML report all show this and nothing else, so that they
 * cannot disagree. Figures of the paper that it can draw are named beside the fields.
 */
export interface FitSummary {
  readonly source: FitSource
  readonly workers: number
  readonly balance: 'exact' | 'none'
  readonly seed: number
  /** Signature quality of each transform over all layers (Fig. 7), in the order count, count-idf, sqrt, … */
  readonly transforms: readonly TransformQuality[]
  readonly chosen: TransformName
  /** What the user asked for: `auto` leaves the choice to ρ. */
  readonly asked: { readonly transform: TransformName | 'auto'; readonly layers: 'auto' | 'all' | 'list' }
  /** One greedy ordering for each transform that was tried (Fig. 8); the chosen one first. Empty when layers were given by hand. */
  readonly curves: readonly LayerCurve[]
  /** Kept layers, rising, and ρ with them. ρ is absent when the trace has no decode data. */
  readonly layers: readonly number[]
  readonly rho?: number
  readonly clusters: readonly ClusterSummary[]
  /** Mean cosine of a request to its own centroid, over the calibration requests. */
  readonly meanSimilarity: number
  /** Iterations of K-means in all runs together, the plain one's included. */
  readonly iterations: number
  /** Sizes that plain K-means gives on the same signatures, falling: what the balance constraint avoids (Fig. 15). */
  readonly vanillaSizes: readonly number[]
  /** Quantiles of the best similarity of each calibration request: what live traffic is compared with to see drift. */
  readonly bestSimilarity: readonly { readonly q: number; readonly value: number }[]
  readonly placement?: PlacementSummary
  readonly stages: readonly { readonly name: string; readonly ms: number }[]
  /** Said to the user beside the tables: what was not possible, what was chosen for them. */
  readonly notes: readonly string[]
}

export interface FitSource {
  readonly file: string
  readonly sha256: string
  readonly model: string
  readonly workload?: string
  readonly requests: number
  readonly layers: number
  readonly experts: number
  readonly topK: number
  readonly domains: readonly string[]
  readonly version: string
}

export interface TransformQuality {
  readonly name: TransformName
  readonly rho: number
  readonly pairs: number
  /** Requests that carry what the transform needs: gate scores may be kept for some rows only. */
  readonly requests: number
  /** Whether a hand-off can carry what the transform needs; the others are for study. */
  readonly servable: boolean
}

export interface LayerCurve {
  readonly transform: TransformName
  /** Layers in the order in which greedy selection took them. */
  readonly order: readonly number[]
  /** ρ after each of them. */
  readonly rho: readonly number[]
  /** N*: how many of `order` are kept. */
  readonly peak: number
}

export interface ClusterSummary {
  readonly size: number
  readonly meanSimilarity: number
  /** Requests by domain, in the order of `source.domains`; empty when the trace names none. */
  readonly domains: readonly number[]
}

/** Expected active experts on the fullest rank of a decode step, mean over layers, one value a cluster. */
export interface PlacementSummary {
  readonly ranks: number
  readonly batch: number
  readonly perCluster: readonly {
    readonly linear: number
    readonly global: number
    readonly own: number
    readonly ideal: number
  }[]
}

/** What the HTML report draws beyond the summary. Values are plain numbers so that a page can hold them as they are. */
export interface FitFigures {
  /** First two principal components of the signatures (Fig. 9). `domain` and `cluster` are indices; domain is −1 when unknown. */
  readonly pca: {
    readonly points: readonly {
      readonly x: number
      readonly y: number
      readonly domain: number
      readonly cluster: number
    }[]
    readonly centroids: readonly { readonly x: number; readonly y: number }[]
    /** Share of the variance on each axis. */
    readonly explained: readonly [number, number]
  }
  /** Decode activation by domain as a ratio to the mean over domains (1 is that mean), at the layer that tells domains apart best (Fig. 1). Absent without domains or decode data. */
  readonly heat?: {
    readonly layer: number
    /** Columns: expert ids, put next to those of the same leading domain. */
    readonly experts: readonly number[]
    readonly rows: readonly { readonly domain: string; readonly values: readonly number[] }[]
  }
  /** One point an expert and layer: its share of prefill and of decode choices, both × experts, so that 1 is the average (Fig. 3). Absent without decode data. */
  readonly activation?: {
    readonly correlation: number
    readonly points: readonly { readonly x: number; readonly y: number }[]
  }
}
