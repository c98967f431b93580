import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { brokenNumbers, parse } from '../../test/browser/well-formed.ts'
import { scatterPlot, thinned, type ScatterPlot } from './scatter-plot.ts'

const words = { id: 's', title: 'Plane', description: 'two clouds' }
const draw = (more: Partial<ScatterPlot>) =>
  parse(scatterPlot({ ...words, x: { label: 'x' }, y: { label: 'y' }, points: [], ...more }).markup)
const point = (i: number, group = 0) => ({ x: Math.cos(i), y: Math.sin(i), group })

describe('scatterPlot', () => {
  it('draws every point, many per path', () => {
    const elements = draw({ points: Array.from({ length: 1000 }, (_, i) => point(i)) })
    const dots = elements.filter(({ attributes }) => attributes['class'] === 'dots')
    expect(dots.length).toBeLessThan(20)
    expect(dots.reduce((sum, { attributes }) => sum + attributes['d']!.split('h0').length - 1, 0)).toBe(1000)
  })

  it('numbers overlay markers up to a limit, and names all of them in tooltips', () => {
    const overlay = (length: number) =>
      Array.from({ length }, (_, i) => ({ ...point(i), label: String(i), tooltip: `worker ${i}` }))
    const few = draw({ points: [point(0)], overlay: overlay(16) })
    expect(
      few.filter(({ attributes }) => attributes['class'] === 'number').map(({ text }) => text),
    ).toContain('15')
    const many = draw({ points: [point(0)], overlay: overlay(256) })
    expect(many.filter(({ attributes }) => attributes['class'] === 'number')).toHaveLength(0)
    expect(many.filter(({ text }) => text.startsWith('worker '))).toHaveLength(256)
  })

  it('draws the diagonal with equal axes', () => {
    const elements = draw({
      points: [
        { x: 0, y: 0, group: 0 },
        { x: 1, y: 9, group: 0 },
      ],
      diagonal: true,
    })
    expect(elements.filter(({ text }) => text === '8')).toHaveLength(2)
    expect(elements.some(({ text }) => text === 'y = x')).toBe(true)
  })

  it('leaves out values that are not finite and says when nothing is left', () => {
    expect(brokenNumbers(draw({ points: [point(0), { x: Number.NaN, y: 1, group: 0 }] }))).toEqual([])
    expect(draw({ points: [{ x: Infinity, y: 1, group: 0 }] }).at(-1)!.text).toBe(
      'no data: there are no points',
    )
  })
})

describe('thinned', () => {
  it('keeps about the limit, every group and the order, and is deterministic', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 0, max: 5 }), { maxLength: 500 }),
        fc.integer({ min: 1, max: 100 }),
        (groups, limit) => {
          const points = groups.map((group, id) => ({ group, id }))
          const kept = thinned(points, limit)
          expect(new Set(kept.map(({ group }) => group))).toEqual(new Set(groups))
          expect(kept.length).toBeLessThanOrEqual(limit + new Set(groups).size)
          expect(kept).toEqual(kept.toSorted((a, b) => a.id - b.id))
          expect(thinned(points, limit)).toEqual(kept)
        },
      ),
    )
  })
})
