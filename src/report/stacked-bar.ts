import { element, type Markup } from './markup.ts'
import { groupColour, isRepeated } from './palette.ts'
import { tooltip } from './svg.ts'

export interface Part {
  readonly label: string
  readonly value: number
  readonly group: number
}

/**
 * A stacked bar that fills a table cell. `words` lists all parts, because the numbers beside the bar may be
 * shortened. A group with an already used colour has a line through its middle.
 */
export function stackedBar(parts: readonly Part[], words: string): Markup {
  const drawable = parts.filter(part => Number.isFinite(part.value) && part.value > 0)
  const total = drawable.reduce((sum, part) => sum + part.value, 0)
  let x = 0
  const segments = drawable.flatMap(({ value, group }) => {
    const [start, width] = [x, (value / total) * 100]
    x += width
    return [
      element('rect', { x: start, y: 0, width, height: 10, fill: groupColour(group) }),
      isRepeated(group) ? element('rect', { class: 'again', x: start, y: 4, width, height: 2 }) : undefined,
    ]
  })
  return element(
    'svg',
    { class: 'stack', viewBox: '0 0 100 10', preserveAspectRatio: 'none', role: 'img', 'aria-label': words },
    tooltip(words),
    segments,
  )
}
