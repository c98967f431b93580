import { describe, expect, it } from 'vitest'
import { brokenNumbers, parse } from '../../test/browser/well-formed.ts'
import { barChart, type Bar } from './bar-chart.ts'

const words = { id: 'b', title: 'TPOT by policy', description: 'eldr is lowest' }
const bar = (label: string, value: number, more: Partial<Bar> = {}): Bar => ({
  label,
  value,
  shown: `${value} ms`,
  ...more,
})
const draw = (...bars: Bar[]) =>
  parse(barChart({ ...words, axis: { label: 'TPOT, ms' }, groups: [{ heading: 'policies', bars }] }).markup)
const rects = (elements: ReturnType<typeof draw>) => elements.filter(({ name }) => name === 'rect')

describe('barChart', () => {
  it('draws bars as long as their values, from zero', () => {
    const [a, b] = rects(draw(bar('jsq', 10), bar('eldr', 5)))
    expect(Number(a!.attributes['width'])).toBeCloseTo(2 * Number(b!.attributes['width']), 1)
    expect(a!.attributes['x']).toBe(b!.attributes['x'])
  })

  it('draws negative values to the left of zero', () => {
    const [a, b] = rects(draw(bar('better', -5), bar('worse', 5)))
    expect(Number(a!.attributes['x'])).toBeLessThan(Number(b!.attributes['x']))
  })

  it('shows name, value and heading, with a tooltip on each bar', () => {
    const texts = draw(bar('eldr', 5, { tooltip: 'eldr: 5 ms over 3 seeds' })).map(({ text }) => text)
    expect(texts).toEqual(
      expect.arrayContaining(['eldr', '5 ms', 'policies', 'TPOT, ms', 'eldr: 5 ms over 3 seeds']),
    )
  })

  it('marks hollow and starred bars and draws whiskers', () => {
    const classes = draw(bar('a', 5, { hollow: true }), bar('b', 5, { starred: true, low: 4, high: 6 })).map(
      ({ attributes }) => attributes['class'],
    )
    expect(classes).toEqual(expect.arrayContaining(['hollow', 'starred', 'star', 'whisker']))
  })

  it('leaves out values that are not finite, and says so when nothing is left', () => {
    expect(rects(draw(bar('a', Number.NaN), bar('b', 1, { low: Number.NaN, high: 2 })))).toHaveLength(1)
    expect(draw(bar('a', Infinity)).at(-1)!.text).toBe('no data: nothing was measured')
    expect(brokenNumbers(draw(bar('a', 1, { low: Number.NaN, high: Infinity })))).toEqual([])
  })

  it('cuts long names and has the full name in a tooltip', () => {
    const name = 'a domain with a name that goes on and on and on and on and on'
    const elements = draw(bar(name, 1))
    expect(elements.some(({ name: tag, text }) => tag === 'text' && text.endsWith('…'))).toBe(true)
    expect(elements.some(({ name: tag, text }) => tag === 'title' && text === name)).toBe(true)
  })
})
