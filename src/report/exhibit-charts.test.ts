import { describe, expect, it } from 'vitest'
import { chartsOf, HOSTILE } from '../../test/browser/exhibit-fixture.ts'
import { brokenNumbers, parse } from '../../test/browser/well-formed.ts'
import type { ExhibitChart } from './exhibit.ts'
import { cellText, isNumeric, significant } from './exhibit-cells.ts'
import { createColours, exhibitChart } from './exhibit-charts.ts'
import { element } from './markup.ts'

/** Elements of a chart, sound. */
function draw(chart: ExhibitChart) {
  const elements = parse(element('div', {}, exhibitChart(chart, 'c', createColours([chart]))).markup)
  expect(brokenNumbers(elements)).toEqual([])
  return elements
}
const withClass = (elements: ReturnType<typeof draw>, name: string) =>
  elements.filter(({ attributes }) => attributes['class'] === name)
const says = (elements: ReturnType<typeof draw>) => elements.map(({ text }) => text).join('\n')
const [lines, bars, points, heat] = chartsOf(['jsq', 'eldr', 'union']) as [
  Extract<ExhibitChart, { kind: 'lines' }>,
  Extract<ExhibitChart, { kind: 'bars' }>,
  Extract<ExhibitChart, { kind: 'points' }>,
  Extract<ExhibitChart, { kind: 'heat' }>,
]

describe('a chart of an exhibit', () => {
  it('draws lines with bands, a rule, a star and a legend', () => {
    const elements = draw(lines)
    expect(withClass(elements, 'line')).toHaveLength(2 + 2) // with those of the legend
    expect(withClass(elements, 'line dashed')).toHaveLength(1 + 1)
    expect(withClass(elements, 'band')).toHaveLength(3)
    expect(withClass(elements, 'rule')).toHaveLength(1)
    expect(withClass(elements, 'star')).toHaveLength(1)
    expect(withClass(elements, 'legend')).toHaveLength(1)
    expect(says(elements)).toContain('jsq, 100.0: 10.00 (9.800 to 10.20)')
  })

  it('draws bars with their numbers, and bars of the same name in the same colour', () => {
    const elements = draw(bars)
    const colours = elements.filter(({ name }) => name === 'rect').map(({ attributes }) => attributes['fill'])
    expect(colours).toEqual(
      Array.from({ length: 3 }, () => [0, 1, 2].map(group => `var(--group-${group})`)).flat(),
    )
    expect(says(elements)).toContain('−10.0\u00a0%')
    expect(withClass(elements, 'hollow')).toHaveLength(3)
    const once = draw({ ...bars, groups: bars.groups.slice(0, 1) })
    expect(
      new Set(once.filter(({ name }) => name === 'rect').map(({ attributes }) => attributes['fill'])).size,
    ).toBe(1)
  })

  it('draws points with their counts and marks, and says when some are left out', () => {
    const text = says(draw(points))
    for (const part of ['eldr', ' 40', '7: the seventh worker', 'y = x']) expect(text).toContain(part)
    const many = { label: 'many', points: Array.from({ length: 9000 }, (_, i) => [i, i % 7] as const) }
    expect(says(draw({ ...points, groups: [many] }))).toContain('4,000 of the 9,000 points are drawn')
  })

  it('draws cells with labels for both ends', () => {
    const text = says(draw(heat))
    for (const part of ['mean or below', '≥ 3 ×', 'union, expert 3: 3.500']) expect(text).toContain(part)
  })

  it('needs no legend for a single name', () => {
    expect(withClass(draw({ ...lines, series: lines.series.slice(0, 1) }), 'legend')).toHaveLength(0)
    expect(
      withClass(draw({ ...points, groups: points.groups.slice(0, 1), marks: [] }), 'legend'),
    ).toHaveLength(0)
  })

  it.each(chartsOf([]))('says so when it is empty: $kind', chart => {
    expect(says(draw(chart))).toMatch(/no data: /)
  })

  it.each(chartsOf([HOSTILE, 'x'.repeat(3000), '\u202e\u0000']))(
    'shows hostile and long names as text: $kind',
    chart => {
      const elements = draw(chart)
      expect(elements.filter(({ name }) => ['script', 'img', 'style'].includes(name))).toEqual([])
      expect(
        Math.max(
          ...withClass(elements, 'legend')
            .concat(elements.filter(({ name }) => name === 'span'))
            .map(({ text }) => text.length),
          0,
        ),
      ).toBeLessThan(60)
    },
  )

  it('draws a single point of each kind', () => {
    const charts = [
      draw({ ...lines, series: [{ label: 'a', points: [{ x: 3, y: 4 }] }] }),
      draw({ ...bars, groups: [{ bars: [{ label: 'a', value: 0, digits: 0 }] }] }),
      draw({ ...points, groups: [{ label: 'a', points: [[1, 2]] }] }),
      draw({ ...heat, columns: ['1'], rows: [{ label: 'a', values: [1] }] }),
    ]
    for (const chart of charts) expect(says(chart)).not.toContain('no data')
  })

  it('skips values that are not finite', () => {
    const wrong = [NaN, Infinity, -Infinity]
    const series = wrong.map((y, at) => ({
      label: `${at}`,
      star: 0,
      points: [
        { x: 1, y },
        { x: y, y: 1 },
        { x: 2, y: 2, low: y, high: y },
      ],
    }))
    draw({ ...lines, series, rules: [{ y: NaN, label: 'none' }] })
    expect(says(draw({ ...lines, series: [{ label: 'none', points: [{ x: NaN, y: 1 }] }] }))).toContain(
      'no data',
    )
    draw({
      ...bars,
      groups: [{ bars: wrong.map(value => ({ label: 'b', value, digits: 1, low: value, high: 1 })) }],
    })
    draw({
      ...points,
      groups: [{ label: 'p', points: wrong.map(value => [value, 1] as const) }],
      marks: [{ x: NaN, y: 1, label: '1', about: 'a' }],
    })
    draw({ ...heat, rows: [{ label: 'h', values: wrong }], from: NaN, to: Infinity })
  })
})

describe('colours of names', () => {
  it('stay the same across charts, and are distinct within one', () => {
    const colours = createColours([]).of
    expect([...colours(['jsq', 'eldr', 'union']).values()]).toEqual([0, 1, 2])
    expect([...colours(['union', 'eldr'])]).toEqual([
      ['union', 2],
      ['eldr', 1],
    ])
    expect([...colours(['count', 'sqrt']).values()]).toEqual([0, 1])
    const mixed = colours(['sqrt', 'eldr', 'new'])
    expect(new Set(mixed.values()).size).toBe(3)
    expect(mixed.get('sqrt')).toBe(1)
    expect(colours(['eldr', 'union']).get('eldr')).toBe(1)
  })

  it('repeat with another shape when there are more names than colours', () => {
    const groups = [
      ...createColours([])
        .of(Array.from({ length: 30 }, (_, i) => `${i}`))
        .values(),
    ]
    expect(groups).toEqual(Array.from({ length: 30 }, (_, i) => i))
  })
})

describe('a cell', () => {
  it('is a number with its unit and interval, a text, or a dash', () => {
    expect(cellText({ value: 1234.567, digits: 1, unit: 'ms', half: 2 })).toBe(
      '1,234.6\u00a0±\u00a02.0\u00a0ms',
    )
    expect(cellText({ value: 3, digits: 1, signed: true, half: NaN })).toBe('+3.0')
    expect(cellText({ value: -3, digits: 0, signed: true })).toBe('−3')
    expect(cellText({ value: 0.001, digits: 1, signed: true })).toBe('0.0')
    for (const value of [NaN, Infinity])
      expect(cellText({ value, digits: 1, unit: 'ms', signed: true })).toBe('–')
    expect([cellText(null), cellText('<x>'), cellText(undefined)]).toEqual(['–', '<x>', ''])
  })

  it('is aligned right in a column of numbers, but not in names or mixed columns', () => {
    const number = { value: 1, digits: 0 }
    const table = {
      columns: ['a', 'b', 'c', 'd'],
      rows: [
        [number, number, 'text', null],
        ['x', null, number],
      ],
    }
    expect([0, 1, 2, 3].map(column => isNumeric(table, column))).toEqual([false, true, false, false])
  })

  it('of unknown precision has four significant digits', () => {
    expect([0, 1234.5, 0.012345, 12, -1e-12, NaN].map(significant)).toEqual([
      '0.000',
      '1,235',
      '0.01235',
      '12.00',
      '0.000',
      '–',
    ])
  })
})
