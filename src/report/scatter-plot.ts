/**
 * Points coloured by group, with numbered markers above them and an optional diagonal. Thousands of points
 * are written as a few paths; groups are drawn in alternating slices, so that the last group does not hide
 * the first.
 */
import { element, type Markup } from './markup.ts'
import { groupColour, groupShape } from './palette.ts'
import { extent, type Extent } from './scale.ts'
import { spread } from './spread.ts'
import {
  cartesian,
  CHART_WIDTH,
  markerPath,
  noData,
  short,
  svgRoot,
  tooltip,
  type Axis,
  type Box,
  type Cartesian,
  type ChartWords,
} from './svg.ts'

export interface ScatterPlot extends ChartWords {
  readonly x: Axis
  readonly y: Axis
  readonly points: readonly ScatterPoint[]
  readonly overlay?: readonly OverlayMarker[]
  /** Straight lines in the colours of their groups, above the points. */
  readonly lines?: readonly ScatterLine[]
  /** Both axes get the same range, and y = x is drawn. */
  readonly diagonal?: boolean
  readonly nothing?: string
  readonly width?: number
  readonly height?: number
}

export interface ScatterPoint {
  readonly x: number
  readonly y: number
  readonly group: number
}

export interface ScatterLine {
  readonly group: number
  readonly from: { readonly x: number; readonly y: number }
  readonly to: { readonly x: number; readonly y: number }
}

export interface OverlayMarker {
  readonly x: number
  readonly y: number
  /** At most three characters, drawn inside the marker. */
  readonly label: string
  readonly tooltip: string
}

/** With more overlay markers, they are small and only tooltips name them. */
export const MAX_NUMBERED = 64
const SLICES = 8
const DISC = 8.5

export function scatterPlot(chart: ScatterPlot): Markup {
  const width = chart.width ?? CHART_WIDTH
  const height = chart.height ?? 440
  const points = chart.points.filter(isDrawable)
  const overlay = (chart.overlay ?? []).filter(isDrawable)
  const everything = [...points, ...overlay]
  const xs = extent(everything.map(point => point.x))
  const ys = extent(everything.map(point => point.y))
  if (points.length === 0 || xs === undefined || ys === undefined)
    return noData(chart, chart.nothing ?? 'there are no points', width)

  const both = { low: Math.min(xs.low, ys.low), high: Math.max(xs.high, ys.high) }
  const plot =
    chart.diagonal === true
      ? cartesian(width, height, { axis: chart.x, data: both }, { axis: chart.y, data: both })
      : cartesian(
          width,
          height,
          { axis: { tight: true, ...chart.x }, data: padded(xs) },
          { axis: { tight: true, ...chart.y }, data: padded(ys) },
        )
  return svgRoot(
    chart,
    width,
    height,
    plot.axes,
    chart.diagonal === true ? diagonal(plot) : undefined,
    slices(points, plot),
    (chart.lines ?? [])
      .filter(({ from, to }) => isDrawable(from) && isDrawable(to))
      .flatMap(one => line(one, plot)),
    overlay.length > MAX_NUMBERED ? overlay.map(one => dot(one, plot)) : numbered(overlay, plot),
  )
}

/**
 * About `limit` of the points, evenly spaced within each group, at least one per group; deterministic.
 * Callers say so in the caption.
 */
export function thinned<Point extends { readonly group: number }>(
  points: readonly Point[],
  limit: number,
): readonly Point[] {
  if (points.length <= limit) return points
  const sizes = new Map<number, number>()
  for (const { group } of points) sizes.set(group, (sizes.get(group) ?? 0) + 1)
  const seen = new Map<number, number>()
  return points.filter(({ group }) => {
    const before = seen.get(group) ?? 0
    seen.set(group, before + 1)
    const size = sizes.get(group)!
    const quota = Math.max(1, Math.floor((size * limit) / points.length))
    return Math.floor(((before + 1) * quota) / size) > Math.floor((before * quota) / size)
  })
}

function isDrawable(point: { readonly x: number; readonly y: number }): boolean {
  return Number.isFinite(point.x) && Number.isFinite(point.y)
}

function padded({ low, high }: Extent): Extent {
  const margin = (high - low) * 0.04
  return { low: low - margin, high: high + margin }
}

function diagonal({ box, x, y }: Cartesian): Markup {
  const [from, to] = [Math.max(x.from, y.from), Math.min(x.to, y.to)]
  return element(
    'g',
    {},
    element('line', { class: 'rule', x1: x.at(from), y1: y.at(from), x2: x.at(to), y2: y.at(to) }),
    element(
      'text',
      { class: 'halo quiet', x: box.right - 22, y: box.top + 8, 'text-anchor': 'end' },
      'y = x',
    ),
  )
}

function slices(points: readonly ScatterPoint[], { x, y }: Cartesian): readonly Markup[] {
  const radius = points.length > 1500 ? 1.8 : points.length > 300 ? 2.3 : 3
  const opacity = points.length > 1500 ? 0.55 : points.length > 300 ? 0.7 : 0.85
  const paths = new Map<string, { group: number; d: string }>()
  const seen = new Map<number, number>()
  for (const point of points) {
    const nth = seen.get(point.group) ?? 0
    seen.set(point.group, nth + 1)
    const key = `${nth % SLICES} ${point.group}`
    const slice = paths.get(key) ?? { group: point.group, d: '' }
    const shape = groupShape(point.group)
    // A zero-length line with round ends is the shortest way to draw a circle.
    slice.d +=
      shape === 'circle'
        ? `M${short(x.at(point.x))} ${short(y.at(point.y))}h0`
        : markerPath(shape, x.at(point.x), y.at(point.y), radius)
    paths.set(key, slice)
  }
  return [...paths.entries()]
    .sort(([a], [b]) => Number.parseInt(a) - Number.parseInt(b))
    .map(([, { group, d }]) =>
      groupShape(group) === 'circle'
        ? element('path', {
            class: 'dots',
            stroke: groupColour(group),
            'stroke-width': 2 * radius,
            'stroke-opacity': opacity,
            d,
          })
        : element('path', { fill: groupColour(group), 'fill-opacity': opacity, d }),
    )
}

/** On a broad stroke of the background, so that it stands out from points of its own colour. */
function line({ group, from, to }: ScatterLine, { x, y }: Cartesian): Markup[] {
  const d = `M${short(x.at(from.x))} ${short(y.at(from.y))}L${short(x.at(to.x))} ${short(y.at(to.y))}`
  return [
    element('path', { fill: 'none', stroke: 'var(--surface)', 'stroke-width': 3.5, d }),
    element('path', { class: 'line', stroke: groupColour(group), d }),
  ]
}

function dot(one: OverlayMarker, { x, y }: Cartesian): Markup {
  return element(
    'path',
    { class: 'centroid', d: markerPath('circle', x.at(one.x), y.at(one.y), 3.5) },
    tooltip(one.tooltip),
  )
}

/** Numbered discs. Overlapping discs move apart, with a line back to their position. */
function numbered(overlay: readonly OverlayMarker[], { box, x, y }: Cartesian): readonly Markup[] {
  const places = overlay.map(one => ({ x: x.at(one.x), y: y.at(one.y) }))
  const inner: Box = {
    left: box.left + DISC,
    right: box.right - DISC,
    top: box.top + DISC,
    bottom: box.bottom - DISC,
  }
  const discs = spread(places, DISC * 2 + 1, inner)
  return overlay.map((one, i) => {
    const [place, disc] = [places[i]!, discs[i]!]
    const moved = Math.hypot(place.x - disc.x, place.y - disc.y) > 1.5
    return element(
      'g',
      {},
      tooltip(one.tooltip),
      moved
        ? element('path', {
            class: 'leader',
            d: `M${short(place.x)} ${short(place.y)}L${short(disc.x)} ${short(disc.y)}`,
          })
        : undefined,
      moved ? element('path', { class: 'place', d: markerPath('circle', place.x, place.y, 2.2) }) : undefined,
      element('circle', { class: 'centroid', cx: disc.x, cy: disc.y, r: DISC }),
      element(
        'text',
        {
          class: 'number',
          x: disc.x,
          y: disc.y + 3.6,
          'text-anchor': 'middle',
          'font-size': one.label.length > 2 ? 8 : 10,
        },
        one.label,
      ),
    )
  })
}
