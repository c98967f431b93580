/**
 * Parts of all charts: frame with texts for screen readers, fitted text, axes, markers. Charts have a viewBox
 * of `CHART_WIDTH` units and stretch to their column, so sizes suit a phone (about 0.8 px per unit) and half
 * a desktop page (about 1.2). Colours are custom properties of the page's theme.
 */
import { element, type Child, type Markup } from './markup.ts'
import { tickLabel } from './numbers.ts'
import type { Shape } from './palette.ts'
import { linearScale, type Extent, type Scale } from './scale.ts'

export const CHART_WIDTH = 460
export const WIDE_WIDTH = 940
export const TEXT = 12

/** What every chart needs besides data. */
export interface ChartWords {
  /** Unique on the page; titles refer to it. */
  readonly id: string
  readonly title: string
  /** The result in words, for screen readers. */
  readonly description: string
}

export interface Axis {
  /** With the unit. */
  readonly label: string
  readonly from?: number
  readonly to?: number
  /** Counts: no ticks between whole numbers. */
  readonly whole?: boolean
  /** End at the data instead of on a tick. */
  readonly tight?: boolean
  readonly format?: (value: number) => string
}

export interface Box {
  readonly left: number
  readonly right: number
  readonly top: number
  readonly bottom: number
}

export function svgRoot(
  { id, title, description }: ChartWords,
  width: number,
  height: number,
  ...children: readonly Child[]
): Markup {
  return element(
    'svg',
    {
      class: width > CHART_WIDTH ? 'chart wide' : 'chart',
      viewBox: `0 0 ${Math.round(width)} ${Math.round(height)}`,
      role: 'img',
      'aria-labelledby': `${id}-title`,
      'aria-describedby': `${id}-description`,
      'font-size': TEXT,
    },
    element('title', { id: `${id}-title` }, title),
    element('desc', { id: `${id}-description` }, description),
    children,
  )
}

/** Placeholder for a missing chart, with the reason. */
export function noData(words: ChartWords, why: string, width = CHART_WIDTH): Markup {
  const lines = wrapped(`no data: ${why}`, width - 40, TEXT)
  const height = 44 + lines.length * 18
  return svgRoot(
    { ...words, description: `No data: ${why}` },
    width,
    height,
    element('rect', { class: 'nothing', x: 1, y: 1, width: width - 2, height: height - 2, rx: 6 }),
    lines.map((line, i) =>
      element('text', { class: 'quiet', x: width / 2, y: 35 + i * 18, 'text-anchor': 'middle' }, line),
    ),
  )
}

/** Native tooltip of the parent element. */
export function tooltip(text: string | undefined): Markup | undefined {
  return text === undefined ? undefined : element('title', {}, text)
}

/** Text cut to a width, with the full text as tooltip. */
export function fittedText(
  text: string,
  width: number,
  attributes: Readonly<Record<string, string | number | undefined>>,
  size = TEXT,
): Markup {
  const shown = fitted(text, width, size)
  return element(
    'text',
    { 'font-size': size === TEXT ? undefined : size, ...attributes },
    shown,
    shown === text ? undefined : tooltip(text),
  )
}

export function fitted(text: string, width: number, size = TEXT): string {
  if (textWidth(text, size) <= width) return text
  const characters = Array.from(text)
  let kept = 0
  let used = textWidth('…', size)
  while (kept < characters.length && used + textWidth(characters[kept]!, size) <= width)
    used += textWidth(characters[kept++]!, size)
  return `${characters.slice(0, kept).join('').trimEnd()}…`
}

/**
 * An upper estimate for the widest common system font: text cannot be measured here, and a gap is better than
 * a cut.
 */
export function textWidth(text: string, size = TEXT): number {
  let em = 0
  for (const character of text) {
    if (/[ijlIft.,:;'|!()[\] ]/.test(character)) em += 0.4
    else if (/[mwMW@%—…]/.test(character)) em += 1
    else if (character < '\u0400') em += /[A-Z]/.test(character) ? 0.74 : 0.64
    else em += character < '\u1100' || /[‐-⁞←-⋿]/.test(character) ? 0.8 : 1.1
  }
  return em * size
}

function wrapped(text: string, width: number, size: number): string[] {
  const lines: string[] = []
  for (const word of text.split(' ')) {
    const joined = lines.length > 0 ? `${lines.at(-1)} ${word}` : word
    if (lines.length > 0 && textWidth(joined, size) <= width) lines[lines.length - 1] = joined
    else lines.push(fitted(word, width, size))
  }
  return lines
}

/** An axis and the range of its data. */
export interface PlotAxis {
  readonly axis: Axis
  readonly data: Extent
}

export interface Cartesian {
  readonly box: Box
  readonly x: Scale
  readonly y: Scale
  /** Grid, ticks and labels, drawn below the data. */
  readonly axes: Markup
}

/** A plot with two linear axes. The y label is horizontal, above the axis. */
export function cartesian(
  width: number,
  height: number,
  { axis: xAxis, data: xData }: PlotAxis,
  { axis: yAxis, data: yData }: PlotAxis,
): Cartesian {
  const top = 30
  const bottom = height - 40
  const y = axisScale(yAxis, yData, [bottom, top], height > 260 ? 6 : 5)
  const yLabels = y.ticks.map(tick => axisLabel(yAxis, y, tick))
  const left = Math.min(width * 0.3, Math.max(...yLabels.map(label => textWidth(label))) + 14)
  const wanted = width > CHART_WIDTH ? 10 : 6
  const ends = axisScale(xAxis, xData, [0, 1], wanted)
  const right = width - Math.max(14, textWidth(axisLabel(xAxis, ends, ends.ticks.at(-1)!)) / 2 + 2)
  const box: Box = { left, right, top, bottom }
  const x = axisScale(xAxis, xData, [box.left, box.right], wanted)
  const xLabels = x.ticks.map(tick => axisLabel(xAxis, x, tick))
  const every = labelEvery(xLabels, box.right - box.left)
  const axes = element(
    'g',
    { class: 'axes' },
    y.ticks.map((tick, i) => [
      element('line', { class: 'gridline', x1: box.left, x2: box.right, y1: y.at(tick), y2: y.at(tick) }),
      element(
        'text',
        { class: 'tick', x: box.left - 6, y: y.at(tick) + 4, 'text-anchor': 'end' },
        yLabels[i]!,
      ),
    ]),
    x.ticks.map((tick, i) => [
      element('line', { class: 'axis', x1: x.at(tick), x2: x.at(tick), y1: box.bottom, y2: box.bottom + 4 }),
      i % every === 0
        ? element(
            'text',
            { class: 'tick', x: x.at(tick), y: box.bottom + 17, 'text-anchor': 'middle' },
            xLabels[i]!,
          )
        : undefined,
    ]),
    element('line', { class: 'axis', x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }),
    fittedText(xAxis.label, box.right - box.left, {
      class: 'label',
      x: (box.left + box.right) / 2,
      y: height - 6,
      'text-anchor': 'middle',
    }),
    fittedText(yAxis.label, width - 12, { class: 'label', x: 0, y: 14 }),
  )
  return { box, x, y, axes }
}

/** Every n-th label fits along a length without overlap; returns n. */
export function labelEvery(labels: readonly string[], length: number): number {
  const room = length / Math.max(1, labels.length - 1)
  return Math.max(1, Math.ceil((Math.max(...labels.map(label => textWidth(label))) + 8) / room))
}

export function axisScale(
  axis: Axis,
  data: Extent,
  positions: readonly [number, number],
  wanted: number,
): Scale {
  const range = { low: axis.from ?? data.low, high: axis.to ?? data.high }
  return linearScale(range, positions, {
    wanted,
    smallestStep: axis.whole === true ? 1 : 0,
    tight: axis.tight === true,
  })
}

export function axisLabel(axis: Axis, scale: Scale, tick: number): string {
  return axis.format?.(tick) ?? tickLabel(tick, scale.step)
}

/** Path of a marker of radius r around a point; all shapes have about the same area. */
export function markerPath(shape: Shape, x: number, y: number, r: number): string {
  const at = (dx: number, dy: number) => `${short(x + dx * r)} ${short(y + dy * r)}`
  switch (shape) {
    case 'circle':
      return `M${at(-1, 0)}a${short(r)} ${short(r)} 0 1 0 ${short(2 * r)} 0a${short(r)} ${short(r)} 0 1 0 ${short(-2 * r)} 0z`
    case 'diamond':
      return `M${at(0, -1.3)}L${at(1.3, 0)} ${at(0, 1.3)} ${at(-1.3, 0)}z`
    case 'triangle':
      return `M${at(0, -1.3)}L${at(1.25, 0.9)} ${at(-1.25, 0.9)}z`
    case 'square':
      return `M${at(-0.9, -0.9)}L${at(0.9, -0.9)} ${at(0.9, 0.9)} ${at(-0.9, 0.9)}z`
    case 'cross':
      return `M${at(-0.4, -1.3)}L${at(0.4, -1.3)} ${at(0.4, 1.3)} ${at(-0.4, 1.3)}zM${at(-1.3, -0.4)}L${at(1.3, -0.4)} ${at(1.3, 0.4)} ${at(-1.3, 0.4)}z`
    case 'bar':
      return `M${at(-1.4, -0.5)}L${at(1.4, -0.5)} ${at(1.4, 0.5)} ${at(-1.4, 0.5)}z`
  }
}

export function starPath(x: number, y: number, r: number): string {
  const corner = (i: number) => {
    const reach = i % 2 === 0 ? r : r * 0.42
    const angle = (Math.PI * i) / 5
    return `${short(x + reach * Math.sin(angle))} ${short(y - reach * Math.cos(angle))}`
  }
  return `M${Array.from({ length: 10 }, (_, i) => corner(i)).join('L')}z`
}

/** A tenth of a unit is precise enough for marks and keeps paths short. */
export function short(value: number): string {
  return Number.isFinite(value) ? String(Math.round(value * 10) / 10 + 0) : '0'
}
