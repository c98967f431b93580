import { describe, expect, it } from 'vitest'
import { exhibitFixture, extremeExhibits, HOSTILE } from '../../test/browser/exhibit-fixture.ts'
import { brokenNumbers, parse, type Parsed } from '../../test/browser/well-formed.ts'
import type { ExhibitReport } from './exhibit.ts'
import { exhibitPage } from './exhibit-page.ts'

const textOf = (elements: readonly Parsed[]) =>
  elements.flatMap(({ name, text }) => (name === 'style' ? [] : [text])).join('\n')

/**
 * A page is sound: well-formed, without broken numbers, without anything that runs or loads; links stay on
 * the page.
 */
function sound(report: ExhibitReport): readonly Parsed[] {
  const elements = parse(exhibitPage(report, '0.1.0'))
  expect(brokenNumbers(elements)).toEqual([])
  const names = new Set(elements.map(({ name }) => name))
  for (const name of ['script', 'link', 'img', 'iframe', 'object', 'base', 'form'])
    expect(names).not.toContain(name)
  const keys = elements.flatMap(({ attributes }) => Object.keys(attributes))
  expect(keys.filter(key => /^on|^src$|^style$/.test(key))).toEqual([])
  const ids = elements.flatMap(({ attributes }) => attributes['id'] ?? [])
  for (const { attributes } of elements.filter(({ name }) => name === 'a'))
    expect(ids).toContain(attributes['href']!.slice(1))
  return elements
}

describe('exhibitPage', () => {
  it('shows facts, contents, and every exhibit with its finding, charts, tables, paper and source', () => {
    const elements = sound(exhibitFixture())
    const text = textOf(elements)
    for (const part of [
      'Policies on a cluster',
      'topology',
      '8P16D, 24 GPUs',
      'union is 12.0 % below',
      'By policy',
      '8.00\u00a0±\u00a00.10\u00a0ms',
      '+2.0\u00a0%',
      'Up to 18 %.',
      'Why it differs: ',
      'A smaller model',
      '3 seeds.',
      'Every number on this page',
    ])
      expect(text).toContain(part)
    expect(elements.filter(({ name }) => name === 'a').map(({ attributes }) => attributes['href'])).toEqual([
      '#lines',
      '#bars',
      '#points',
      '#heat',
      '#wide',
    ])
    const charts = elements.filter(({ attributes }) => attributes['class']?.startsWith('chart'))
    expect(charts).toHaveLength(8)
    expect(elements.filter(({ name }) => name === 'table')).toHaveLength(5)
    // Link, heading and title; in a card of several charts heading and title.
    expect(text.match(/^TPOT p50 over rate$/gm)).toHaveLength(3 + 2)
  })

  it('lists notes, or nothing', () => {
    const withNotes = (notes: readonly string[]) => {
      const report = exhibitFixture()
      const [first] = report.sections[0]!.exhibits
      return sound({ ...report, sections: [{ title: 'One', exhibits: [{ ...first!, notes }] }] })
    }
    const lists = (notes: readonly string[]) =>
      withNotes(notes).filter(({ attributes }) => attributes['class'] === 'remarks')
    expect(textOf(withNotes(['It is so.', HOSTILE]))).toContain('It is so.')
    expect([lists(['It is so.']).length, lists([]).length]).toEqual([1, 0])
  })

  it('aligns numbers and labels tables for screen readers', () => {
    const elements = sound(exhibitFixture())
    const heads = elements.filter(({ name, attributes }) => name === 'th' && attributes['scope'] === 'col')
    expect(heads.slice(0, 4).map(({ text, attributes }) => [text, attributes['class']])).toEqual([
      ['policy', undefined],
      ['TPOT p50', 'number'],
      ['change', 'number'],
      ['note', undefined],
    ])
    const regions = elements.filter(({ attributes }) => attributes['role'] === 'region')
    expect(
      regions.every(({ attributes }) => attributes['aria-label'] !== '' && attributes['tabindex'] === '0'),
    ).toBe(true)
  })

  it('is the same, byte for byte, for the same report', () => {
    expect(exhibitPage(exhibitFixture(), '1')).toBe(exhibitPage(structuredClone(exhibitFixture()), '1'))
  })

  it('escapes hostile text everywhere', () => {
    const elements = sound(exhibitFixture([HOSTILE, '${x}', '&lt;'], HOSTILE))
    expect(elements.find(({ name }) => name === 'h1')!.text).toBe(HOSTILE)
  })

  it('stays well-formed and small with long names, many rows and no data', () => {
    const extreme = extremeExhibits()
    sound(extreme)
    const table = {
      columns: ['n', 'v'],
      rows: Array.from({ length: 4000 }, (_, i) => [`${i}`, { value: i, digits: 0 }]),
    }
    const exhibit = { ...extreme.sections[0]!.exhibits[0]!, charts: [], tables: [table] }
    expect(textOf(sound({ ...extreme, sections: [{ title: 'Rows', exhibits: [exhibit] }] }))).toContain(
      '3488 more rows not shown.',
    )
    sound({ title: '', intro: '', facts: [], sections: [], footer: '' })
    sound({
      title: '',
      intro: '',
      facts: [],
      sections: [
        {
          title: '',
          exhibits: [{ ...exhibit, finding: '', source: '', tables: [{ columns: [], rows: [] }] }],
        },
      ],
      footer: '',
    })
  })

  it('rejects ids that cannot be linked', () => {
    const report = exhibitFixture()
    const withId = (id: string) => ({
      ...report,
      sections: [
        ...report.sections,
        { title: 'More', exhibits: [{ ...report.sections[0]!.exhibits[0]!, id }] },
      ],
    })
    for (const id of ['lines', '', 'a b', '"><', '1a'])
      expect(() => exhibitPage(withId(id), '1')).toThrow('exhibit id')
  })
})
