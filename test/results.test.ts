/** The saved results, and the page that is made of them. */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { resultsPage } from '../src/paper/results-page.ts'
import type { ExhibitReport } from '../src/report/exhibit.ts'
import { shipped } from './data.ts'

const docs = (name: string) => readFileSync(new URL(`../docs/${name}`, import.meta.url), 'utf8')
const saved = (name: string) => JSON.parse(docs(`evidence/results/${name}.json`)) as ExhibitReport
const [whole, cut] = [saved('whole'), saved('cut')]

describe('the page of results', () => {
  it('is made from the saved results as they are now: run `npm run build && npm run docs` if not', () => {
    expect(docs('evidence/results.md')).toBe(resultsPage(whole, cut))
  })

  it('has every table and figure of the paper that a trace can give, and an anchor for each of both reports', () => {
    const wanted = [
      'fig-1',
      'fig-2',
      'fig-3',
      'fig-4',
      'fig-5',
      'fig-7',
      'fig-8',
      'fig-9',
      'fig-11',
      'fig-12',
      'against-prototype',
      'measured-profile',
      'fig-13',
      'fig-14',
      'fig-15',
      'fig-16',
      'fig-17',
      'fig-18',
      'table-2',
      'bursts',
      'foresight',
      'capacity',
    ]
    for (const { sections } of [whole, cut])
      expect(sections.flatMap(({ exhibits }) => exhibits.map(({ id }) => id))).toEqual(wanted)
    const anchors = [...docs('evidence/results.md').matchAll(/<a id="([^"]+)">/g)].map(([, id]) => id)
    expect(new Set(anchors).size).toBe(anchors.length)
    expect(anchors).toHaveLength(2 * wanted.length + 2)
  })
})

describe('saved results', () => {
  it('of the cut are those of the traces that ship', () => {
    const facts = new Map(cut.facts.map(({ term, value }) => [term, value]))
    for (const name of [
      'lab16-task.calibration',
      'lab16-task.evaluation',
      'lab16-lang.calibration',
      'lab16-lang.evaluation',
    ]) {
      const sha256 = createHash('sha256')
        .update(readFileSync(shipped(name)))
        .digest('hex')
      expect(facts.get(`${name}.safetensors`)).toBe(`sha256 ${sha256}`)
    }
  })

  it('say beside every figure of the paper what the paper has, and where all numbers come from', () => {
    for (const { id, finding, notes = [], paper, source } of [whole, cut].flatMap(({ sections }) =>
      sections.flatMap(({ exhibits }) => exhibits),
    )) {
      expect(finding).toMatch(/^[A-Z].*\.$/)
      expect(finding + notes.join('') + source).not.toMatch(/NaN|undefined|Infinity/)
      expect(source).toMatch(/sha256 [0-9a-f]{12}…|Measured on/)
      expect(paper === undefined).toBe(!/^(fig|table)-/.test(id))
    }
  })

  it('are small, and hold no path of a machine', () => {
    const texts = ['whole', 'cut'].map(name => docs(`evidence/results/${name}.json`))
    expect(texts.join('').length).toBeLessThan(1e6)
    for (const text of texts) expect(text).not.toMatch(/"(\/|[A-Z]:\\)|\.\.\//)
  })
})
