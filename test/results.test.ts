/** The saved results, and the page and data files generated from them. */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { resultsData, resultsPage } from '../src/paper/results-page.ts'
import { verdictOf } from '../src/paper/verdicts.ts'
import type { Exhibit, ExhibitReport } from '../src/report/exhibit.ts'
import { resultText } from '../src/report/result-text.ts'
import { shipped } from './data.ts'

const docs = (name: string) => readFileSync(new URL(`../docs/${name}`, import.meta.url), 'utf8')
const [wholeText, cutText] = await Promise.all(
  ['whole', 'cut'].map(name =>
    resultText(new URL(`../docs/evidence/results/${name}.json.br`, import.meta.url)),
  ),
)
const [whole, cut] = [JSON.parse(wholeText!) as ExhibitReport, JSON.parse(cutText!) as ExhibitReport]
const exhibitsOf = ({ sections }: ExhibitReport): Exhibit[] => sections.flatMap(({ exhibits }) => exhibits)
const page = docs('evidence/results.md')
/** The page's text on one exhibit. */
const partOf = (id: string): string => page.split(`<a id="${id}"></a>`)[1]!.split('<a id=')[0]!

describe('docs/evidence/results.md', () => {
  it('is generated from the saved results: run `npm run build && npm run docs` if not', () => {
    expect(page).toBe(resultsPage(whole, cut))
  })

  it('has every table and figure of the paper that a trace can give, each with an anchor', () => {
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
    for (const report of [whole, cut]) expect(exhibitsOf(report).map(({ id }) => id)).toEqual(wanted)
    const anchors = [...page.matchAll(/<a id="([^"]+)">/g)].map(([, id]) => id)
    expect(anchors).toEqual(wanted)
  })

  it('has at most 8,000 words', () => {
    expect(page.split(/\s+/).length).toBeLessThanOrEqual(8000)
  })

  it('has a verdict, the paper’s finding and the conditions for each exhibit', () => {
    for (const exhibit of exhibitsOf(whole)) {
      const part = partOf(exhibit.id)
      expect(part).toContain(`**${verdictOf(exhibit).word}.**`)
      expect(part).toContain('**Conditions:**')
      expect(part.includes('**Paper:**')).toBe(exhibit.paper !== undefined)
    }
  })

  it('links a data file for each exhibit, generated from both reports', async () => {
    const files = resultsData(whole, cut)
    for (const { id, tables, charts } of exhibitsOf(whole)) {
      const { path, text } = files.find(file => file.id === id)!
      expect(partOf(id)).toContain(`](${path})`)
      expect(await resultText(new URL(`../docs/evidence/${path}`, import.meta.url))).toBe(text)
      for (const part of tables.length > 0 ? tables : charts)
        expect(text).toContain(part.title?.split(',')[0] ?? '')
      expect(text).toMatch(/^whole,/m)
      expect(text).toMatch(/^cut,/m)
    }
    expect(files.length).toBe(exhibitsOf(whole).length)
    expect(files.filter(({ path }) => path.endsWith('.gz')).length).toBeGreaterThan(3)
  })

  it('shows the cut exactly where its verdict differs', () => {
    const shown = exhibitsOf(whole).filter(({ id }) => partOf(id).includes('**On the cut:**'))
    const differs = exhibitsOf(whole).filter((exhibit, at) => {
      const [ours, other] = [verdictOf(exhibit), verdictOf(exhibitsOf(cut)[at]!)]
      return ours.word !== other.word || ours.why !== other.why
    })
    expect(shown.map(({ id }) => id)).toEqual(differs.map(({ id }) => id))
    expect(differs.map(({ id }) => id)).toContain('fig-12')
  })

  it('says where routing by domain label beats band, and which exhibits cannot fail', () => {
    expect(partOf('fig-11')).toContain(
      'lower p50 than band at 3 of the 4 loads and a higher p99 at all 4 loads',
    )
    expect(partOf('fig-11')).toMatch(/On the cut.*at 1 of the 4 loads and a higher p99 at all 4 loads/)
    expect(partOf('fig-17')).toContain('test/vllm/test_engine_modes.py')
    expect(partOf('bursts')).toContain('TTFT is the same under every decode policy by construction')
    expect(page).not.toMatch(/has no noise/)
  })
})

describe('the saved results', () => {
  it('of the cut are those of the shipped traces', () => {
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

  it('give the paper’s finding for each of its figures, and a source for all numbers', () => {
    for (const { id, finding, notes = [], paper, source } of [whole, cut].flatMap(exhibitsOf)) {
      expect(finding).toMatch(/^[A-Z].*\.$/)
      expect(finding + notes.join('') + source).not.toMatch(/NaN|undefined|Infinity/)
      expect(source).toMatch(/sha256 [0-9a-f]{12}…|Measured on/)
      expect(paper === undefined).toBe(!/^(fig|table)-/.test(id))
    }
  })

  it('are small and contain no absolute path', () => {
    const texts = [wholeText!, cutText!]
    expect(texts.join('').length).toBeLessThan(1e6)
    for (const text of texts) expect(text).not.toMatch(/"(\/|[A-Z]:\\)|\.\.\//)
  })
})
