import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { brokenNumbers, parse } from '../../test/browser/well-formed.ts'
import { SHAPES } from './palette.ts'
import { cartesian, fitted, labelEvery, markerPath, noData, starPath, svgRoot, textWidth } from './svg.ts'

const words = { id: 'c', title: 'Time & <place>', description: 'falls from 3 to 1' }

describe('svgRoot', () => {
  it('has a title and description for screen readers', () => {
    const [svg, title, description] = parse(svgRoot(words, 460, 300).markup)
    expect(svg!.attributes).toMatchObject({
      role: 'img',
      viewBox: '0 0 460 300',
      'aria-labelledby': 'c-title',
      'aria-describedby': 'c-description',
    })
    expect([title!.text, description!.text]).toEqual(['Time & <place>', 'falls from 3 to 1'])
  })
})

describe('noData', () => {
  it('gives the reason in lines that fit', () => {
    const texts = parse(
      noData(words, `the trace has no decode data ${'and more '.repeat(20)}`).markup,
    ).filter(({ name }) => name === 'text')
    expect(texts[0]!.text).toMatch(/^no data: the trace has no decode data/)
    for (const { text } of texts) expect(textWidth(text)).toBeLessThanOrEqual(420)
  })
})

describe('fitted', () => {
  it('keeps short text and cuts long text with an ellipsis', () => {
    expect(fitted('legal', 100)).toBe('legal')
    expect(fitted('a very long name of a domain', 60)).toMatch(/^a very.*…$/)
  })

  it('never exceeds the width, for any characters', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'grapheme', maxLength: 60 }),
        fc.integer({ min: 20, max: 400 }),
        (text, width) => {
          expect(textWidth(fitted(text, width))).toBeLessThanOrEqual(width)
        },
      ),
    )
  })
})

describe('cartesian', () => {
  it('labels both axes and keeps the plot inside the chart', () => {
    const plot = cartesian(
      460,
      300,
      { axis: { label: 'requests per second' }, data: { low: 0, high: 80 } },
      { axis: { label: 'TPOT, ms' }, data: { low: 12.1, high: 19.7 } },
    )
    const texts = parse(plot.axes.markup).flatMap(({ name, text }) => (name === 'text' ? [text] : []))
    expect(texts).toEqual(expect.arrayContaining(['requests per second', 'TPOT, ms', '0', '80', '12', '20']))
    expect(plot.box.left).toBeGreaterThan(0)
    expect(plot.box.right).toBeLessThan(460)
    expect(plot.y.at(12.1)).toBeGreaterThan(plot.y.at(19.7))
  })
})

describe('labelEvery', () => {
  it('skips labels that would overlap', () => {
    expect(labelEvery(['0', '10', '20'], 300)).toBe(1)
    expect(labelEvery(['0', '1,000,000', '2,000,000', '3,000,000'], 120)).toBeGreaterThan(1)
  })
})

describe('markers', () => {
  it('are drawn around their position, with finite numbers', () => {
    const paths = [...SHAPES.map(shape => markerPath(shape, 10, 20, 3)), starPath(10, 20, 9)]
    expect(new Set(paths).size).toBe(paths.length)
    expect(brokenNumbers(paths.map(text => ({ name: 'path', attributes: {}, text })))).toEqual([])
  })
})
