import { element, together, type Markup } from './markup.ts'
import { groupColour, groupShape, isRepeated } from './palette.ts'
import { markerPath } from './svg.ts'

export interface LegendEntry {
  readonly label: string
  /** After the label, in a muted colour: a count. */
  readonly note?: string
  readonly swatch: Swatch
}

export type Swatch =
  | { readonly kind: 'marker' | 'line' | 'dashed' | 'bar' | 'hollow'; readonly group: number }
  | { readonly kind: 'centroid' | 'star' }

/** A chart's legend in HTML above the chart, so that it wraps and its text does not scale with the chart. */
export function legend(entries: readonly LegendEntry[]): Markup {
  return element(
    'ul',
    { class: 'legend' },
    entries.map(({ label, note, swatch }) =>
      element(
        'li',
        {},
        drawn(swatch),
        element('span', {}, label, note === undefined ? undefined : element('small', {}, ` ${note}`)),
      ),
    ),
  )
}

function drawn(swatch: Swatch): Markup {
  return element('svg', { class: 'swatch', viewBox: '0 0 18 14', 'aria-hidden': 'true' }, shape(swatch))
}

function shape(swatch: Swatch): Markup {
  switch (swatch.kind) {
    case 'marker':
      return element('path', {
        fill: groupColour(swatch.group),
        d: markerPath(groupShape(swatch.group), 9, 7, 4.4),
      })
    case 'line':
    case 'dashed':
      return together(
        element('path', {
          class: swatch.kind === 'line' ? 'line' : 'line dashed',
          stroke: groupColour(swatch.group),
          d: 'M0 7H18',
        }),
        isRepeated(swatch.group)
          ? element('path', {
              fill: groupColour(swatch.group),
              d: markerPath(groupShape(swatch.group), 9, 7, 4.4),
            })
          : undefined,
      )
    case 'bar':
      return together(
        element('rect', { x: 1, y: 2, width: 16, height: 10, fill: groupColour(swatch.group) }),
        isRepeated(swatch.group)
          ? element('rect', { class: 'again', x: 1, y: 6, width: 16, height: 2 })
          : undefined,
      )
    case 'hollow':
      return element('rect', {
        class: 'hollow',
        x: 1.5,
        y: 2.5,
        width: 15,
        height: 9,
        fill: groupColour(swatch.group),
        stroke: groupColour(swatch.group),
      })
    case 'centroid':
      return element('circle', { class: 'centroid', cx: 9, cy: 7, r: 5.5 })
    case 'star':
      return element('path', {
        class: 'star',
        d: 'M9 .5L10.6 4.8 15.2 5 11.6 7.8 12.8 12.3 9 9.7 5.2 12.3 6.4 7.8 2.8 5 7.4 4.8z',
      })
  }
}
