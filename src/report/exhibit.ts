/**
 * An exhibit is one result as plain data: what is shown, its tables and charts, where the numbers come from. Reports, Markdown pages and
 * JSON are all made of the same exhibits, so they cannot disagree.
 */
export interface Exhibit {
  /** Short, of letters, digits and dashes: fig-11, table-2. Unique in a report. */
  readonly id: string
  readonly title: string
  /** The message in a sentence or two, with numbers that were computed and not typed. */
  readonly finding: string
  /** What a reader should know besides: why something is not as wanted. A sentence or a few each. */
  readonly notes?: readonly string[]
  /** What the paper has, and one line on why ours differs; absent where the paper has nothing of the kind. */
  readonly paper?: { readonly finding: string; readonly differs: string }
  /** Measured on what, or simulated from which trace, profile, topology and seeds. */
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

/** Text as it is; a number with its digits and unit, and half of its 95 % confidence interval where there is one; null is “–”. */
export type Cell = string | null | ExhibitNumber

export interface ExhibitNumber {
  readonly value: number
  readonly digits: number
  readonly unit?: string
  readonly half?: number
  /** Written with + where it is above 0: a change. */
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
  /** Index of the point that is starred. */
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

/** What a report is made of. */
export interface ExhibitReport {
  readonly title: string
  readonly intro: string
  /** What everything rests on: traces with their hashes, profile, seeds, version. */
  readonly facts: readonly { readonly term: string; readonly value: string }[]
  readonly sections: readonly {
    readonly title: string
    readonly intro?: string
    readonly exhibits: readonly Exhibit[]
  }[]
  readonly footer: string
}
