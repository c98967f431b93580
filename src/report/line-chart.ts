/** Line chart: several series, each with an optional band and one starred point, and horizontal rules. */
import { element, type Markup } from './markup.ts'
import { groupColour, groupShape } from './palette.ts'
import { extent } from './scale.ts'
import {
  cartesian,
  CHART_WIDTH,
  fitted,
  markerPath,
  noData,
  short,
  starPath,
  svgRoot,
  textWidth,
  tooltip,
  type Axis,
  type Cartesian,
  type ChartWords,
} from './svg.ts'

export interface LineChart extends ChartWords {
  readonly x: Axis
  readonly y: Axis
  readonly series: readonly Series[]
  /** Horizontal reference lines. */
  readonly rules?: readonly { readonly y: number; readonly label: string }[]
  readonly nothing?: string
  readonly width?: number
  readonly height?: number
}

export interface Series {
  readonly label: string
  readonly group: number
  readonly points: readonly LinePoint[]
  readonly dashed?: boolean
  /** Step line: a value holds until the next point. */
  readonly stairs?: boolean
  /** Index into `points`. */
  readonly star?: { readonly index: number; readonly label?: string }
}

export interface LinePoint {
  readonly x: number
  readonly y: number
  /** Ends of the band. */
  readonly low?: number
  readonly high?: number
  readonly tooltip?: string
}

/** With more points, marks would hide the line. */
const MAX_MARKS = 400

export function lineChart(chart: LineChart): Markup {
  const width = chart.width ?? CHART_WIDTH
  const height = chart.height ?? 300
  const series = chart.series
    .map(one => ({ ...one, points: one.points.filter(isDrawable), starred: starOf(one) }))
    .filter(one => one.points.length > 0)
  const points = series.flatMap(one => one.points)
  const xs = extent(points.map(point => point.x))
  const rules = (chart.rules ?? []).filter(rule => Number.isFinite(rule.y))
  const ys = extent([
    ...points.flatMap(point => [point.y, point.low ?? point.y, point.high ?? point.y]),
    ...rules.map(rule => rule.y),
  ])
  if (xs === undefined || ys === undefined)
    return noData(chart, chart.nothing ?? 'nothing was measured', width)

  const hasStar = series.some(one => one.starred !== undefined)
  const plot = cartesian(
    width,
    height,
    { axis: chart.x, data: xs },
    { axis: chart.y, data: withHeadroom(ys, hasStar) },
  )
  const marks = points.length <= MAX_MARKS
  return svgRoot(
    chart,
    width,
    height,
    plot.axes,
    series.map(one => band(one, plot)),
    rules.map(({ y }) =>
      element('line', {
        class: 'rule',
        x1: plot.box.left,
        x2: plot.box.right,
        y1: plot.y.at(y),
        y2: plot.y.at(y),
      }),
    ),
    // The first series is the main one: drawn last, above the others.
    series.toReversed().map(one => [
      element('path', {
        class: one.dashed === true ? 'line dashed' : 'line',
        stroke: groupColour(one.group),
        d: path(one, plot),
      }),
      marks ? one.points.map(point => mark(one, point, plot)) : undefined,
    ]),
    rules.map(rule => ruleLabel(rule, series, plot)),
    series.map(one => star(one, plot)),
  )
}

type Drawn = Series & { readonly starred: LinePoint | undefined }

function isDrawable(point: LinePoint): boolean {
  return Number.isFinite(point.x) && Number.isFinite(point.y)
}

function starOf({ star, points }: Series): LinePoint | undefined {
  const point = star === undefined ? undefined : points[star.index]
  return point !== undefined && isDrawable(point) ? point : undefined
}

/** Room above the highest point for the star's label. */
function withHeadroom(
  { low, high }: { low: number; high: number },
  starred: boolean,
): { low: number; high: number } {
  return starred ? { low, high: high + (high - low) * 0.12 } : { low, high }
}

const steps = (length: number): number[] =>
  Array.from({ length: Math.ceil(length / 6) + 3 }, (_, i) => (i - 1) * 6)
const isWithin = (value: number, low: number, high: number): boolean => value > low && value < high

/** Height of a line at x, NaN outside. Points are sorted by x. */
function heightAt(line: readonly { readonly x: number; readonly y: number }[], x: number): number {
  const after = line.findIndex(point => point.x >= x)
  const [a, b] = [line[after - 1] ?? line[after], line[after]]
  if (a === undefined || b === undefined || (after === 0 && b.x - x > 3)) return Number.NaN
  return b.x === a.x ? b.y : a.y + ((x - a.x) / (b.x - a.x)) * (b.y - a.y)
}

/** Where no line crosses the label: at the right end of the rule if that is free. */
function ruleLabel(
  { y, label }: { y: number; label: string },
  series: readonly Series[],
  plot: Cartesian,
): Markup {
  const shown = fitted(label, plot.box.right - plot.box.left)
  const long = textWidth(shown)
  const level = plot.y.at(y)
  const [from, to] = [plot.box.left + 4, plot.box.right - 2 - long]
  const places = [1, 0, 0.75, 0.5, 0.25]
    .map(at => from + (to - from) * at)
    .flatMap(x => [
      { x, y: level + 15 },
      { x, y: level - 6 },
    ])
  const inside = places.filter(place => place.y - 10 > plot.box.top && place.y < plot.box.bottom - 2)
  const lines = series.map(({ points }) =>
    points.map(point => ({ x: plot.x.at(point.x), y: plot.y.at(point.y) })).sort((a, b) => a.x - b.x),
  )
  const crossings = (place: { x: number; y: number }) =>
    lines.reduce(
      (sum, line) =>
        sum +
        steps(long).filter(dx => isWithin(heightAt(line, place.x + dx), place.y - 13, place.y + 5)).length,
      0,
    )
  const best = inside.reduce((a, b) => (crossings(b) < crossings(a) ? b : a), inside[0] ?? places[0]!)
  return element('text', { class: 'halo quiet', x: best.x, y: best.y }, shown)
}

function path({ points, stairs }: Series, { x, y }: Cartesian): string {
  let d = ''
  for (const [i, point] of points.entries()) {
    const [px, py] = [short(x.at(point.x)), short(y.at(point.y))]
    if (i === 0) d = `M${px} ${py}`
    else d += stairs === true ? `H${px}V${py}` : `L${px} ${py}`
  }
  return d
}

function band({ points, group }: Series, { x, y }: Cartesian): Markup | undefined {
  const ranged = points.filter(point => Number.isFinite(point.low) && Number.isFinite(point.high))
  if (ranged.length < 2) return undefined
  const along = (value: (point: LinePoint) => number) => (point: LinePoint) =>
    `${short(x.at(point.x))} ${short(y.at(value(point)))}`
  const corners = [
    ...ranged.map(along(point => point.high!)),
    ...ranged.toReversed().map(along(point => point.low!)),
  ]
  return element('path', { class: 'band', fill: groupColour(group), d: `M${corners.join('L')}z` })
}

/** On dense lines marks are invisible and only carry tooltips. */
function mark({ group, label, points }: Series, point: LinePoint, { x, y }: Cartesian): Markup {
  const dense = points.length > 40
  const d = markerPath(groupShape(group), x.at(point.x), y.at(point.y), 2.4)
  return element(
    'path',
    { class: dense ? 'unseen' : 'mark', fill: groupColour(group), d },
    tooltip(point.tooltip ?? label),
  )
}

function star({ starred, star, label, group }: Drawn, { box, x, y }: Cartesian): Markup | undefined {
  if (starred === undefined) return undefined
  const [px, py] = [x.at(starred.x), y.at(starred.y)]
  const words = tooltip(starred.tooltip ?? star?.label ?? label)
  if (star?.label === undefined)
    return element('path', { class: 'peak', fill: groupColour(group), d: starPath(px, py, 7) }, words)
  const shape = element('path', { class: 'star', d: starPath(px, py, 9) }, words)
  const shown = fitted(star.label, box.right - box.left)
  const half = textWidth(shown) / 2
  const middle = Math.max(box.left + half, Math.min(box.right - half, px))
  return element(
    'g',
    {},
    shape,
    element('text', { class: 'halo strong', x: middle, y: py - 14, 'text-anchor': 'middle' }, shown),
  )
}
