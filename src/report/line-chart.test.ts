import { describe, expect, it } from 'vitest'
import { brokenNumbers, parse } from '../../test/browser/well-formed.ts'
import { lineChart, type LineChart, type Series } from './line-chart.ts'

const words = { id: 'l', title: 'Quality', description: 'rises, then falls' }
const series = (ys: readonly number[], more: Partial<Series> = {}): Series => ({
  label: 's',
  group: 0,
  points: ys.map((y, x) => ({ x, y })),
  ...more,
})
const draw = (list: readonly Series[], more: Partial<LineChart> = {}) =>
  parse(lineChart({ ...words, x: { label: 'layers' }, y: { label: 'ρ' }, series: list, ...more }).markup)
const withClass = (elements: ReturnType<typeof draw>, name: string) =>
  elements.filter(({ attributes }) => attributes['class'] === name)

describe('lineChart', () => {
  it('draws one path per series and one mark per point', () => {
    const elements = draw([series([1, 3, 2]), series([2, 2, 2], { group: 1, dashed: true })])
    expect(withClass(elements, 'line')).toHaveLength(1)
    expect(withClass(elements, 'line dashed')).toHaveLength(1)
    expect(withClass(elements, 'mark')).toHaveLength(6)
  })

  it('draws a star with its label inside the plot', () => {
    const elements = draw([series([1, 3, 2], { star: { index: 1, label: 'peak: 3' } })])
    expect(withClass(elements, 'star')).toHaveLength(1)
    expect(withClass(elements, 'halo strong')[0]!.text).toBe('peak: 3')
  })

  it('draws bands, rules and step lines', () => {
    const points = [1, 2, 3].map(x => ({ x, y: x, low: x - 1, high: x + 1 }))
    const elements = draw([{ label: 's', group: 2, points, stairs: true }], {
      rules: [{ y: 2, label: 'all layers: 2' }],
    })
    expect(withClass(elements, 'band')).toHaveLength(1)
    expect(withClass(elements, 'rule')).toHaveLength(1)
    expect(withClass(elements, 'line')[0]!.attributes['d']).toMatch(/^M[\d. ]+(H[\d.]+V[\d.]+)+$/)
    expect(elements.some(({ text }) => text === 'all layers: 2')).toBe(true)
  })

  it('draws no marks on lines with thousands of points', () => {
    expect(withClass(draw([series(Array.from({ length: 5000 }, (_, i) => i))]), 'mark')).toHaveLength(0)
  })

  it('skips values that are not finite, with their star, and gives a reason for an empty chart', () => {
    const elements = draw([series([1, Number.NaN, 2], { star: { index: 1, label: 'gone' } })], {
      rules: [{ y: Number.NaN, label: 'no' }],
    })
    expect(brokenNumbers(elements)).toEqual([])
    expect(elements.some(({ text }) => text === 'gone' || text === 'no')).toBe(false)
    expect(draw([], { nothing: 'layers were given by hand' }).at(-1)!.text).toBe(
      'no data: layers were given by hand',
    )
  })

  it('has an axis for a single point', () => {
    expect(brokenNumbers(draw([series([5])]))).toEqual([])
  })
})
