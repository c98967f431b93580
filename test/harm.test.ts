/** docs/evidence/harm.md: the page, and the bound that it shows. */
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { type HarmFigures, harmPage, type HarmRow } from '../src/report/harm-page.ts'

const docs = (name: string) => readFileSync(new URL(`../docs/evidence/${name}`, import.meta.url), 'utf8')
const figures = JSON.parse(docs('results/harm.json')) as HarmFigures
const single = figures.rows.filter(({ gateways }) => gateways === undefined)
const mean = (rows: readonly HarmRow[]) => rows.reduce((sum, { p50 }) => sum + p50.mean, 0) / rows.length

describe('docs/evidence/harm.md', () => {
  it('is generated from the saved results: run `npm run build && npm run docs` if not', () => {
    expect(docs('harm.md')).toBe(harmPage(figures))
  })

  it('covers both mixes, three loads and all artifacts, with ten seeds', () => {
    const distinct = (of: (row: HarmRow) => unknown) => new Set(single.map(of)).size
    expect(figures.seeds).toBe(10)
    expect([distinct(({ mix }) => mix), distinct(({ rate }) => rate)]).toEqual([2, 3])
    expect([distinct(({ artifact }) => artifact), distinct(({ policy }) => policy)]).toEqual([5, 3])
    const batches = single.map(({ batch }) => batch)
    expect(Math.min(...batches)).toBeLessThan(12)
    expect(Math.max(...batches)).toBeGreaterThan(40)
  })

  it('shows that eldr and union keep the bound in every cell, and band does not', () => {
    const above = figures.rows.filter(({ p50, p99 }) => p50.mean > 0.01 || p99.mean > 0.03)
    expect(new Set(above.map(({ policy }) => policy))).toEqual(new Set(['band']))
    expect(harmPage(figures)).toContain('**+')
  })

  it('shows that eldr keeps the gain of band with a matching artifact', () => {
    const matched = single.filter(({ artifact }) => artifact === 'matched')
    const of = (name: string) => mean(matched.filter(({ policy }) => policy === name))
    expect(of('eldr')).toBeLessThan(0.95 * of('band'))
  })
})
