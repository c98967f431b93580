import { describe, expect, it } from 'vitest'
import { brokenNumbers, parse } from '../../test/browser/well-formed.ts'
import { heatMap, type HeatMap, type HeatRow } from './heat-map.ts'

const draw = (rows: readonly HeatRow[], more: Partial<HeatMap> = {}) =>
  parse(
    heatMap({
      id: 'h',
      title: 'Experts',
      description: 'code leads on two',
      rows,
      columns: rows[0]?.values.map((_, i) => String(i)) ?? [],
      columnNoun: 'expert',
      columnAxis: 'experts',
      from: 1,
      to: 3,
      fromLabel: 'mean or below',
      toLabel: '3 ×',
      format: value => value.toFixed(1),
      ...more,
    }).markup,
  )
const shades = (elements: ReturnType<typeof draw>) =>
  elements.filter(
    ({ name, attributes }) =>
      name === 'rect' && attributes['fill-opacity'] !== undefined && Number(attributes['height']) > 14,
  )

describe('heatMap', () => {
  it('shades from the background at `from` to the full colour at `to`, clipped on both sides', () => {
    const cells = shades(draw([{ label: 'code', values: [0.2, 1, 2, 3, 9] }]))
    expect(cells.map(({ attributes }) => attributes['fill-opacity'])).toEqual(['0', '0', '0.5', '1', '1'])
  })

  it('has a tooltip per cell, up to some hundreds', () => {
    expect(draw([{ label: 'code', values: [2.5] }]).some(({ text }) => text === 'code, expert 0: 2.5')).toBe(
      true,
    )
  })

  it('joins thousands of cells to one path per shade', () => {
    const rows = Array.from({ length: 14 }, (_, r) => ({
      label: `d${r}`,
      values: Array.from({ length: 512 }, (_, c) => ((r * 7 + c) % 40) / 10),
    }))
    const elements = draw(rows)
    expect(elements.filter(({ name }) => name === 'path').length).toBeLessThanOrEqual(16)
    expect(elements.length).toBeLessThan(200)
  })

  it('leaves cells without a number blank and says when there are none', () => {
    const elements = draw([{ label: 'code', values: [Number.NaN, 2] }], {
      format: value => (Number.isFinite(value) ? String(value) : '–'),
    })
    expect(shades(elements)[0]!.attributes['fill-opacity']).toBe('0')
    expect(brokenNumbers(elements)).toEqual([])
    expect(draw([], { nothing: 'the trace names no domains' }).at(-1)!.text).toBe(
      'no data: the trace names no domains',
    )
  })

  it('handles a scale of zero width', () => {
    expect(brokenNumbers(draw([{ label: 'a', values: [1, 2] }], { from: 1, to: 1 }))).toEqual([])
  })
})
