/**
 * An exhibit is one result as plain data: finding, tables, charts and sources. HTML reports, Markdown pages
 * and JSON are generated from the same exhibits, so they cannot disagree.
 */
export interface Exhibit {
  /** Letters, digits and dashes: fig-11, table-2. Unique in a report. */
  readonly id: string
  readonly title: string
  /** The result in a sentence or two, with computed numbers. */
  readonly finding: string
  /** Caveats and explanations, a few sentences each. */
  readonly notes?: readonly string[]
  /** The paper's result and why ours differs; absent if the paper has none. */
  readonly paper?: { readonly finding: string; readonly differs: string }
  /** Where the numbers were measured, or the trace, profile, topology and seeds of the simulation. */
  readonly source: string
  readonly tables: readonly ExhibitTable[]
  readonly charts: readonly ExhibitChart[]
}

export interface ExhibitTable {
  readonly title?: string
  /** The first column holds names, the others numbers or short texts. */
  readonly columns: readonly string[]
  readonly rows: readonly (readonly Cell[])[]
}

/** Text; a number with digits, unit and half of its 95 % confidence interval; or null, shown as “–”. */
export type Cell = string | null | ExhibitNumber

export interface ExhibitNumber {
  readonly value: number
  readonly digits: number
  readonly unit?: string
  readonly half?: number
  /** A change: positive values get a +. */
  readonly signed?: true
}

export type ExhibitChart =
  | {
      readonly kind: 'lines'
      readonly title: string
      readonly x: string
      readonly y: string
      readonly series: readonly ExhibitSeries[]
      readonly rules?: readonly { readonly y: number; readonly label: string }[]
    }
  | {
      readonly kind: 'bars'
      readonly title: string
      readonly x: string
      readonly groups: readonly { readonly heading?: string; readonly bars: readonly ExhibitBar[] }[]
    }
  | {
      readonly kind: 'points'
      readonly title: string
      readonly x: string
      readonly y: string
      readonly diagonal?: boolean
      readonly groups: readonly {
        readonly label: string
        readonly points: readonly (readonly [number, number])[]
      }[]
      readonly marks?: readonly {
        readonly x: number
        readonly y: number
        readonly label: string
        readonly about: string
      }[]
    }
  | {
      readonly kind: 'heat'
      readonly title: string
      readonly columnNoun: string
      readonly columns: readonly string[]
      readonly rows: readonly { readonly label: string; readonly values: readonly number[] }[]
      readonly from: number
      readonly to: number
      readonly fromLabel: string
      readonly toLabel: string
    }

export interface ExhibitSeries {
  readonly label: string
  readonly dashed?: boolean
  readonly points: readonly {
    readonly x: number
    readonly y: number
    readonly low?: number
    readonly high?: number
  }[]
  /** Index of the starred point. */
  readonly star?: number
}

export interface ExhibitBar {
  readonly label: string
  readonly value: number
  readonly digits: number
  readonly unit?: string
  readonly low?: number
  readonly high?: number
  readonly hollow?: boolean
}

export interface ExhibitReport {
  readonly title: string
  readonly intro: string
  /** Sources: traces with hashes, profile, seeds, version. */
  readonly facts: readonly { readonly term: string; readonly value: string }[]
  readonly sections: readonly {
    readonly title: string
    readonly intro?: string
    readonly exhibits: readonly Exhibit[]
  }[]
  readonly footer: string
}
