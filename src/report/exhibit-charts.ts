/** Charts of exhibits as SVG with legends. A name has the same colour in all charts of a report. */
import { barChart, type Bar } from './bar-chart.ts'
import type { ExhibitBar, ExhibitChart, ExhibitSeries } from './exhibit.ts'
import { numberText, significant } from './exhibit-cells.ts'
import { heatMap } from './heat-map.ts'
import { legend, type LegendEntry } from './legend.ts'
import { lineChart, type Series } from './line-chart.ts'
import { element, together, type Markup } from './markup.ts'
import { clipped, many, whole } from './numbers.ts'
import { COLOURS } from './palette.ts'
import { scatterPlot, thinned } from './scatter-plot.ts'
import type { ChartWords } from './svg.ts'

/** Colours of names in one report. */
export interface Colours {
  /** Colour groups of a chart's names. */
  of(names: readonly string[]): ReadonlyMap<string, number>
  /** True if a chart of the report distinguishes names only by colour. */
  has(name: string): boolean
}

type Lines = Extract<ExhibitChart, { kind: 'lines' }>
type Bars = Extract<ExhibitChart, { kind: 'bars' }>
type Points = Extract<ExhibitChart, { kind: 'points' }>
type Heat = Extract<ExhibitChart, { kind: 'heat' }>

/** More points cover each other and only make the page larger. */
const MAX_POINTS = 4000
/** Up to this many marks are also listed below the chart; more have only tooltips. */
const MAX_LISTED = 24
/** Names come from files and may be long. */
const shortName = (name: string) => clipped(name, 48)

/**
 * Assigns colours for all charts of a report: a name keeps its colour unless another name of the same chart
 * has it.
 */
export function createColours(charts: readonly ExhibitChart[]): Colours {
  const known = new Map<string, number>()
  const told = new Set(charts.flatMap(toldApart))
  function of(names: readonly string[]): ReadonlyMap<string, number> {
    const groups = new Map<string, number>()
    const taken = new Set<number>()
    const give = (name: string, group: number) => {
      groups.set(name, group)
      taken.add(group % COLOURS)
      if (!known.has(name)) known.set(name, group)
    }
    for (const name of names) {
      const group = known.get(name)
      if (group !== undefined && !taken.has(group % COLOURS)) give(name, group)
    }
    for (const name of names) if (!groups.has(name)) give(name, lowestFree(groups, taken))
    return groups
  }
  return { of, has: name => told.has(name) }
}

function toldApart(chart: ExhibitChart): readonly string[] {
  if (chart.kind === 'heat') return []
  if (chart.kind === 'bars') return isRepeating(chart) ? barNames(chart) : []
  const named = chart.kind === 'lines' ? chart.series : chart.groups
  return named.length > 1 ? named.map(({ label }) => label) : []
}

const barNames = ({ groups }: Bars): string[] => groups.flatMap(group => group.bars.map(bar => bar.label))
const isRepeating = (chart: Bars): boolean => new Set(barNames(chart)).size < barNames(chart).length

/** After the last colour, colours repeat with another shape. */
function lowestFree(groups: ReadonlyMap<string, number>, taken: ReadonlySet<number>): number {
  if (taken.size >= COLOURS) return Math.max(COLOURS - 1, ...groups.values()) + 1
  let group = 0
  while (taken.has(group)) group++
  return group
}

/** `id` is unique on the page. */
export function exhibitChart(chart: ExhibitChart, id: string, colours: Colours): Markup {
  const words = (description: string): ChartWords => ({
    id,
    title: chart.title,
    description: clipped(description, 600),
  })
  switch (chart.kind) {
    case 'lines':
      return lines(chart, words, colours)
    case 'bars':
      return bars(chart, words, colours)
    case 'points':
      return points(chart, words, colours)
    case 'heat':
      return heat(chart, words)
  }
}

type Words = (description: string) => ChartWords

function lines(chart: Lines, words: Words, colours: Colours): Markup {
  const drawn = chart.series.filter(one =>
    one.points.some(({ x, y }) => Number.isFinite(x) && Number.isFinite(y)),
  )
  const groups = colours.of(drawn.map(({ label }) => label))
  const firstStar = drawn.findIndex(({ star }) => star !== undefined)
  const series = drawn.map((one, at) => seriesOf(one, groups.get(one.label)!, at === firstStar))
  const xs = drawn.flatMap(one => one.points.map(({ x }) => x))
  const svg = lineChart({
    ...words(`${chart.y} over ${chart.x}: ${listed(series.map(({ label }) => label))}.`),
    x: { label: chart.x, whole: xs.every(x => Number.isInteger(x)), tight: true },
    y: { label: chart.y },
    series,
    rules: chart.rules,
  })
  const entries = series.map(({ label, group, dashed }): LegendEntry => ({
    label: shortName(label),
    swatch: { kind: dashed === true ? 'dashed' : 'line', group },
  }))
  return together(entries.length > 1 ? legend(entries) : undefined, svg)
}

function seriesOf({ label, dashed, points, star }: ExhibitSeries, group: number, isFirst: boolean): Series {
  const starred = star === undefined ? undefined : points[star]
  return {
    label,
    group,
    dashed,
    points: points.map(point => ({ ...point, tooltip: pointText(shortName(label), point) })),
    star: starred && { index: star!, label: isFirst ? significant(starred.y) : undefined },
  }
}

function pointText(label: string, { x, y, low, high }: ExhibitSeries['points'][number]): string {
  const ranged = low !== undefined && high !== undefined && Number.isFinite(low) && Number.isFinite(high)
  return `${label}, ${significant(x)}: ${significant(y)}${ranged ? ` (${significant(low)} to ${significant(high)})` : ''}`
}

function bars(chart: Bars, words: Words, colours: Colours): Markup {
  const names = [...new Set(barNames(chart))]
  // Bars have their names beside them, so only names that occur more than once need a colour.
  const groups = isRepeating(chart) || names.some(name => colours.has(name)) ? colours.of(names) : undefined
  return barChart({
    ...words(`${chart.x}: ${listed(names)}.`),
    axis: { label: chart.x },
    groups: chart.groups.map(({ heading, bars }) => ({
      heading,
      bars: bars.map(bar => barOf(bar, groups?.get(bar.label) ?? 0)),
    })),
  })
}

function barOf(bar: ExhibitBar, group: number): Bar {
  const { label, value, low, high, hollow } = bar
  const range = low !== undefined && high !== undefined ? { low, high } : {}
  return { label, value, shown: numberText(bar), group, hollow, ...range }
}

function points(chart: Points, words: Words, colours: Colours): Markup {
  const named = chart.groups.filter(group => group.points.length > 0)
  const groups = colours.of(named.map(({ label }) => label))
  const all = named.flatMap(({ label, points }) =>
    points.map(([x, y]) => ({ x, y, group: groups.get(label)! })),
  )
  const shown = thinned(all, MAX_POINTS)
  const marks = chart.marks ?? []
  const svg = scatterPlot({
    ...words(`${chart.y} against ${chart.x}: ${listed(named.map(({ label }) => label))}.`),
    x: { label: chart.x },
    y: { label: chart.y },
    points: shown,
    overlay: marks.map(({ x, y, label, about }) => ({ x, y, label: clipped(label, 3), tooltip: about })),
    diagonal: chart.diagonal,
  })
  const entries = [
    ...(named.length > 1 ? named : []).map(({ label, points }): LegendEntry => ({
      label: shortName(label),
      note: whole(points.length),
      swatch: { kind: 'marker', group: groups.get(label)! },
    })),
    ...(marks.length <= MAX_LISTED ? marks : []).map(({ label, about }): LegendEntry => ({
      label: `${clipped(label, 3)}: ${shortName(about)}`,
      swatch: { kind: 'centroid' },
    })),
  ]
  const thin =
    shown.length < all.length
      ? `${whole(shown.length)} of the ${many(all.length, 'point')} are drawn, evenly chosen.`
      : undefined
  return together(
    entries.length > 0 ? legend(entries) : undefined,
    svg,
    thin && element('p', { class: 'quiet' }, thin),
  )
}

function heat(chart: Heat, words: Words): Markup {
  const { rows, columns, columnNoun, from, to, fromLabel, toLabel } = chart
  const description = `${many(rows.length, 'row')} by ${many(columns.length, 'column')} (${columnNoun}): ${listed(rows.map(({ label }) => label))}.`
  return heatMap({
    ...words(description),
    rows,
    columns,
    columnNoun,
    columnAxis: columnNoun,
    from,
    to,
    fromLabel: clipped(fromLabel, 24),
    toLabel: clipped(toLabel, 24),
    format: significant,
  })
}

const MAX_NAMED = 12

function listed(names: readonly string[]): string {
  if (names.length === 0) return 'nothing was measured'
  const rest = names.length > MAX_NAMED ? ` and ${names.length - MAX_NAMED} more` : ''
  return `${names.slice(0, MAX_NAMED).map(shortName).join(', ')}${rest}`
}
