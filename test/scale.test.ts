import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { resultText } from '../src/report/result-text.ts'
import { fillScalePage } from '../src/report/scale-page.ts'
import type { ScaleFigures } from '../src/report/scale-figures.ts'

const docs = (name: string) => readFileSync(new URL(`../docs/${name}`, import.meta.url), 'utf8')
const saved = new URL('../docs/evidence/results/scale.json.gz', import.meta.url)
const figures = JSON.parse(await resultText(saved)) as ScaleFigures

describe('docs/guides/scale.md', () => {
  it('has tables generated from the saved figures: run `npm run build && npm run docs` if not', () => {
    expect(docs('guides/scale.md')).toBe(fillScalePage(docs('guides/scale.md'), figures))
  })

  it('is regenerated only between its markers, and a missing marker is an error', () => {
    const page = docs('guides/scale.md').replace('| policy | gateways |', '| was | here |')
    expect(fillScalePage(page, figures)).toBe(docs('guides/scale.md'))
    expect(() => fillScalePage(page.replace('<!-- /cells -->', ''), figures)).toThrow('no markers for cells')
  })

  it('has at most 1,300 generated words', () => {
    const generated = [...docs('guides/scale.md').matchAll(/<!-- ([\w-]+) -->(.*?)<!-- \/\1 -->/gs)]
    expect(generated).toHaveLength(5)
    expect(generated.flatMap(([, , text]) => text!.trim().split(/[ \n]+/)).length).toBeLessThanOrEqual(1300)
  })

  it('has figures for every part, including one gateway and one cell as a baseline', () => {
    const { staleness, cells, size } = figures
    expect(staleness.clusters.map(({ topology }) => topology)).toEqual(['2P8D', '64D'])
    for (const { rows } of staleness.clusters) {
      expect(rows.filter(({ gateways }) => gateways === 1).map(({ policy }) => policy)).toEqual(
        expect.arrayContaining(['jsq', 'band', 'union']),
      )
      for (const { p50Change, gateways } of rows) expect(p50Change === undefined).toBe(gateways === 1)
    }
    expect(cells.rows.filter(row => row.cells === 1)).toHaveLength(3)
    expect(Math.max(...size.rows.map(({ workers }) => workers))).toBeGreaterThanOrEqual(1000)
  })
})
