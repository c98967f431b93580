/**
 * Rows × columns of values as shades of one colour: background at or below `from`, full colour at or above
 * `to`. Up to some hundreds of cells have tooltips; more are joined to one path per shade to keep the page
 * small.
 */
import { element, type Markup } from './markup.ts'
import { fittedText, noData, short, svgRoot, textWidth, tooltip, WIDE_WIDTH, type ChartWords } from './svg.ts'

export interface HeatMap extends ChartWords {
  readonly rows: readonly HeatRow[]
  /** Short column names, shown below if there is room; tooltips put the noun before them. */
  readonly columns: readonly string[]
  readonly columnNoun: string
  readonly columnAxis: string
  /** Values of the lightest and of the darkest shade. */
  readonly from: number
  readonly to: number
  /** Labels of the ends of the legend. */
  readonly fromLabel: string
  readonly toLabel: string
  readonly format: (value: number) => string
  readonly nothing?: string
  readonly width?: number
}

export interface HeatRow {
  readonly label: string
  /** One value per column. */
  readonly values: readonly number[]
  /** Short text at the end of the row. */
  readonly note?: string
}

const SHADES = 16
const MAX_TOOLTIPS = 700

export function heatMap(chart: HeatMap): Markup {
  const width = chart.width ?? WIDE_WIDTH
  const columns = chart.columns.length
  const rows = chart.rows
  if (rows.length === 0 || columns === 0 || !rows.some(row => row.values.some(Number.isFinite))) {
    return noData(chart, chart.nothing ?? 'there are no cells', width)
  }

  const row = rows.length <= 6 ? 30 : rows.length <= 16 ? 22 : 15
  const left = Math.min(width * 0.22, Math.max(...rows.map(({ label }) => textWidth(label)))) + 8
  const right =
    width - Math.min(width * 0.2, Math.max(2, ...rows.map(({ note }) => textWidth(note ?? '') + 10)))
  const cell = (right - left) / columns
  const bottom = 4 + row * rows.length
  const named = cell >= Math.max(...chart.columns.map(name => textWidth(name, 10))) + 2
  const height = bottom + (named ? 58 : 44)
  const top = (r: number) => 4 + r * row

  return svgRoot(
    chart,
    width,
    height,
    rows.map(({ label, note }, r) => [
      fittedText(label, left - 8, {
        class: 'name',
        x: left - 8,
        y: top(r) + row / 2 + 4,
        'text-anchor': 'end',
      }),
      note === undefined
        ? undefined
        : fittedText(note, width - right - 8, { class: 'tick', x: right + 8, y: top(r) + row / 2 + 4 }),
    ]),
    element('g', { class: 'cells' }, rows.length * columns <= MAX_TOOLTIPS ? cells() : shades()),
    element('rect', { class: 'frame', x: left, y: 4, width: right - left, height: bottom - 4 }),
    rows
      .slice(1)
      .map((_, r) =>
        element('line', { class: 'gridline', x1: left, x2: right, y1: top(r + 1), y2: top(r + 1) }),
      ),
    named
      ? chart.columns.map((name, c) =>
          element(
            'text',
            {
              class: 'tick',
              'font-size': 10,
              x: left + (c + 0.5) * cell,
              y: bottom + 14,
              'text-anchor': 'middle',
            },
            name,
          ),
        )
      : undefined,
    legend(height - 26),
  )

  /** 0 … SHADES; NaN is not shaded. */
  function shadeOf(value: number | undefined): number {
    const share = ((value ?? Number.NaN) - chart.from) / (chart.to - chart.from || 1)
    return Number.isFinite(share) ? Math.round(Math.max(0, Math.min(1, share)) * SHADES) : 0
  }

  function cells(): readonly Markup[] {
    return rows.flatMap(({ label, values }, r) =>
      chart.columns.map((name, c) =>
        element(
          'rect',
          {
            x: left + c * cell,
            y: top(r),
            width: cell,
            height: row,
            'fill-opacity': shadeOf(values[c]) / SHADES,
          },
          tooltip(`${label}, ${chart.columnNoun} ${name}: ${chart.format(values[c] ?? Number.NaN)}`),
        ),
      ),
    )
  }

  function shades(): readonly Markup[] {
    const paths = Array.from({ length: SHADES + 1 }, () => '')
    rows.forEach(({ values }, r) => {
      for (let c = 0; c < columns; c++) {
        const shade = shadeOf(values[c])
        const from = c
        while (c + 1 < columns && shadeOf(values[c + 1]) === shade) c++
        // Edges are rounded the same way from both sides, so that neighbours touch.
        const x = Math.round((left + from * cell) * 10) / 10
        const end = Math.round((left + (c + 1) * cell) * 10) / 10
        if (shade > 0)
          paths[shade] += `M${short(x)} ${short(top(r))}h${short(end - x)}v${short(row)}h${short(x - end)}z`
      }
    })
    return paths.flatMap((d, shade) =>
      d === '' ? [] : [element('path', { d, 'fill-opacity': shade / SHADES })],
    )
  }

  /** One line: column axis on the left, colour scale on the right. */
  function legend(y: number): readonly Markup[] {
    const step = 7
    const end = right - textWidth(chart.toLabel) - 6
    const start = end - step * (SHADES + 1)
    const free = start - textWidth(chart.fromLabel) - 24
    const axisStart = Math.max(0, Math.min(left, free - textWidth(chart.columnAxis)))
    return [
      fittedText(chart.columnAxis, free - axisStart, { class: 'label', x: axisStart, y: y + 11 }),
      element('text', { class: 'tick', x: start - 6, y: y + 11, 'text-anchor': 'end' }, chart.fromLabel),
      element(
        'g',
        { class: 'cells' },
        Array.from({ length: SHADES + 1 }, (_, shade) =>
          element('rect', {
            x: start + shade * step,
            y,
            width: step,
            height: 14,
            'fill-opacity': shade / SHADES,
          }),
        ),
      ),
      element('rect', { class: 'frame', x: start, y, width: step * (SHADES + 1), height: 14 }),
      element('text', { class: 'tick', x: end + 6, y: y + 11 }, chart.toLabel),
    ]
  }
}
