/** The file that `scripts/scale.mjs` writes, and that fills the tables of docs/guides/scale.md. */
import type { Interval } from '../sim/confidence.ts'

export interface ScaleFigures {
  readonly staleness: {
    readonly clusters: readonly { readonly topology: string; readonly rows: readonly StaleFigures[] }[]
  }
  readonly cells: { readonly rows: readonly CellFigures[] }
  readonly wire: WireFigures
  readonly size: { readonly rows: readonly SizeFigures[] }
}

interface Measured {
  readonly policy: string
  /** TPOT in milliseconds. */
  readonly p50: Interval
  readonly p99: Interval
  readonly imbalance: Interval
  readonly experts: Interval
  readonly batch: Interval
  /** Relative change against one gateway or one cell; absent for those. */
  readonly p50Change?: Interval
  readonly p99Change?: Interval
}

export interface StaleFigures extends Measured {
  readonly gateways: number
  /** null: gateways share nothing. */
  readonly viewAgeMs: number | null
  readonly anticipating: boolean
}

export interface CellFigures extends Measured {
  readonly cells: number
  readonly by: 'random' | 'load' | 'locality' | null
}

/**
 * Bytes. `delta`: the experts that `union` expects of a request in four encodings, mean over a trace with
 * `cells` cells.
 */
export interface WireFigures {
  readonly cells: number
  readonly largeCells: number
  readonly event: { readonly binary: number; readonly json: number }
  readonly delta: {
    readonly raw: number
    readonly deflated: number
    readonly bytes: number
    readonly bytesDeflated: number
  }
}

export interface SizeFigures {
  readonly workers: number
  readonly requests: number
  readonly policy: string
  readonly cells: number
  readonly p50: number
  readonly p99: number
  readonly inflight: number
  readonly cpuSeconds: number
  readonly peakBytes: number
}
