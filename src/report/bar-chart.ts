/**
 * Horizontal bars, with room for long names and any number of bars. Bars start at zero; whiskers show a range
 * or a confidence interval; groups of bars have a heading; a hollow bar is for comparison only.
 */
import { element, together, type Markup } from './markup.ts'
import { groupColour } from './palette.ts'
import { extent } from './scale.ts'
import {
  axisLabel,
  axisScale,
  CHART_WIDTH,
  fittedText,
  labelEvery,
  noData,
  short,
  starPath,
  svgRoot,
  textWidth,
  tooltip,
  type Axis,
  type ChartWords,
} from './svg.ts'

export interface BarChart extends ChartWords {
  readonly axis: Axis
  readonly groups: readonly BarGroup[]
  /** Shown when there is nothing to draw. */
  readonly nothing?: string
  readonly width?: number
}

export interface BarGroup {
  readonly heading?: string
  readonly bars: readonly Bar[]
}

export interface Bar {
  readonly label: string
  readonly value: number
  /** The value as printed at the end of the row. */
  readonly shown: string
  /** Ends of the whisker. */
  readonly low?: number
  readonly high?: number
  /** Colour group (default: 0). */
  readonly group?: number
  readonly hollow?: boolean
  /** Marked with a star. */
  readonly starred?: boolean
  readonly tooltip?: string
}

const HEADING = 24

export function barChart(chart: BarChart): Markup {
  const width = chart.width ?? CHART_WIDTH
  const groups = chart.groups
    .map(group => ({ ...group, bars: group.bars.filter(bar => Number.isFinite(bar.value)) }))
    .filter(group => group.bars.length > 0)
  const bars = groups.flatMap(group => group.bars)
  if (bars.length === 0) return noData(chart, chart.nothing ?? 'nothing was measured', width)

  const row = bars.length > 24 ? 17 : bars.length > 12 ? 22 : 28
  const gutter = bars.some(bar => bar.starred === true) ? 16 : 0
  const left = gutter + Math.min(width * 0.38, Math.max(...bars.map(bar => textWidth(bar.label)))) + 8
  const right = width - Math.min(width * 0.25, Math.max(...bars.map(bar => textWidth(bar.shown)))) - 10
  const values = bars.flatMap(bar => [0, bar.value, bar.low ?? 0, bar.high ?? 0])
  const scale = axisScale(chart.axis, extent(values)!, [left, right], 4)
  const labels = scale.ticks.map(tick => axisLabel(chart.axis, scale, tick))
  const every = labelEvery(labels, right - left)

  let y = 6
  const rows: Markup[] = []
  for (const { heading, bars } of groups) {
    if (heading !== undefined) {
      rows.push(fittedText(heading, width - 4, { class: 'halo heading', x: 2, y: y + 15 }))
      y += HEADING
    }
    for (const bar of bars) {
      rows.push(drawn(bar, y, row))
      y += row
    }
    y += 4
  }
  const bottom = y
  const height = bottom + 40

  return svgRoot(
    chart,
    width,
    height,
    element(
      'g',
      { class: 'axes' },
      scale.ticks.map((tick, i) => [
        element('line', {
          class: tick === 0 ? 'axis' : 'gridline',
          x1: scale.at(tick),
          x2: scale.at(tick),
          y1: 4,
          y2: bottom,
        }),
        i % every === 0
          ? element(
              'text',
              { class: 'tick', x: scale.at(tick), y: bottom + 15, 'text-anchor': 'middle' },
              labels[i]!,
            )
          : undefined,
      ]),
      fittedText(chart.axis.label, width - 8, {
        class: 'label',
        x: axisMiddle(),
        y: height - 6,
        'text-anchor': 'middle',
      }),
    ),
    rows,
  )

  /** Below the axis, shifted left if a long label would leave the chart. */
  function axisMiddle(): number {
    const half = Math.min(width - 8, textWidth(chart.axis.label)) / 2
    return Math.max(half + 2, Math.min(width - half - 2, (left + right) / 2))
  }

  function drawn(bar: Bar, y: number, row: number): Markup {
    const middle = y + row / 2
    const thick = row * 0.6
    const start = scale.at(Math.min(0, bar.value))
    const colour = groupColour(bar.group ?? 0)
    return element(
      'g',
      { class: bar.starred === true ? 'starred' : undefined },
      tooltip(bar.tooltip ?? `${bar.label}: ${bar.shown}`),
      bar.starred === true ? element('path', { class: 'star', d: starPath(8, middle, 7) }) : undefined,
      fittedText(bar.label, left - gutter - 8, {
        class: 'name',
        x: left - 8,
        y: middle + 4,
        'text-anchor': 'end',
      }),
      element('rect', {
        class: bar.hollow === true ? 'hollow' : undefined,
        x: start,
        y: middle - thick / 2,
        width: Math.max(0.5, Math.abs(scale.at(bar.value) - scale.at(0))),
        height: thick,
        fill: colour,
        stroke: bar.hollow === true ? colour : undefined,
      }),
      whisker(bar, middle, thick),
      element('text', { class: 'value', x: width - 4, y: middle + 4, 'text-anchor': 'end' }, bar.shown),
    )
  }

  function whisker({ low, high }: Bar, middle: number, thick: number): Markup {
    if (low === undefined || high === undefined || !Number.isFinite(low) || !Number.isFinite(high))
      return together()
    const [a, b, cap] = [short(scale.at(low)), short(scale.at(high)), short(thick / 2)]
    const [up, mid] = [short(middle - thick / 4), short(middle)]
    return element('path', { class: 'whisker', d: `M${a} ${up}v${cap}M${b} ${up}v${cap}M${a} ${mid}H${b}` })
  }
}
