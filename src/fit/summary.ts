import type { TransformName } from '../signature/transform.ts'

/**
 * The results of one fit as plain data: the terminal tables, `--json` and the HTML report all show this and
 * nothing else, so that they cannot disagree. Comments name the paper's figures.
 */
export interface FitSummary {
  readonly source: FitSource
  readonly workers: number
  readonly balance: 'exact' | 'none'
  readonly seed: number
  /** Signature quality of each transform over all layers (Fig. 7), in the order count, count-idf, sqrt, … */
  readonly transforms: readonly TransformQuality[]
  readonly chosen: TransformName
  /** What the user requested: `auto` leaves the choice to ρ. */
  readonly asked: { readonly transform: TransformName | 'auto'; readonly layers: 'auto' | 'all' | 'list' }
  /**
   * One greedy ordering for each transform that was tried (Fig. 8), the chosen one first. Empty if layers
   * were given by hand.
   */
  readonly curves: readonly LayerCurve[]
  /** Kept layers, ascending, and ρ with them. ρ is absent if the trace has no decode data. */
  readonly layers: readonly number[]
  readonly rho?: number
  readonly clusters: readonly ClusterSummary[]
  /** Mean cosine of a request to its own centroid, over the calibration requests. */
  readonly meanSimilarity: number
  /** Iterations of K-means over all runs, including the plain one's. */
  readonly iterations: number
  /**
   * Cluster sizes of plain K-means on the same signatures, descending: what the balance constraint avoids
   * (Fig. 15).
   */
  readonly vanillaSizes: readonly number[]
  /**
   * Quantiles of the best similarity of each calibration request; live traffic is compared with them to
   * detect drift.
   */
  readonly bestSimilarity: readonly { readonly q: number; readonly value: number }[]
  readonly placement?: PlacementSummary
  readonly stages: readonly { readonly name: string; readonly ms: number }[]
  /** Notes shown next to the tables: what was not possible, and what was chosen automatically. */
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
  /** Requests that have what the transform needs: gate scores may be recorded for some rows only. */
  readonly requests: number
  /** True if a hand-off can carry what the transform needs; the others are for study. */
  readonly servable: boolean
}

export interface LayerCurve {
  readonly transform: TransformName
  /** Layers in the order of greedy selection. */
  readonly order: readonly number[]
  /** ρ after each of them. */
  readonly rho: readonly number[]
  /** N*: how many of `order` are kept. */
  readonly peak: number
}

export interface ClusterSummary {
  readonly size: number
  readonly meanSimilarity: number
  /** Requests per domain, in the order of `source.domains`; empty if the trace has none. */
  readonly domains: readonly number[]
}

/** Expected active experts on the fullest rank of a decode step, mean over layers, one value per cluster. */
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

/** Data for the HTML report beyond the summary. Values are plain numbers, so that a page can embed them. */
export interface FitFigures {
  /**
   * First two principal components of the signatures (Fig. 9). `domain` and `cluster` are indices; domain is
   * −1 if unknown.
   */
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
  /**
   * Decode activation per domain relative to the mean over domains (1 is that mean), at the layer that
   * separates domains best (Fig. 1). Absent without domains or decode data.
   */
  readonly heat?: {
    readonly layer: number
    /** Columns: expert ids, grouped by leading domain. */
    readonly experts: readonly number[]
    readonly rows: readonly { readonly domain: string; readonly values: readonly number[] }[]
  }
  /**
   * One point per expert and layer: its share of prefill and of decode choices, both × experts, so that 1 is
   * the average (Fig. 3). Absent without decode data.
   */
  readonly activation?: {
    readonly correlation: number
    readonly points: readonly { readonly x: number; readonly y: number }[]
  }
}
