/** docs/evidence/harm.md: the page, and the bound that it shows. */
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import {
  gainsKept,
  type HarmFigures,
  harmPage,
  type HarmRow,
  type LiveHarm,
} from '../src/report/harm-page.ts'

const docs = (name: string) => readFileSync(new URL(`../docs/evidence/${name}`, import.meta.url), 'utf8')
const figures = JSON.parse(docs('results/harm.json')) as HarmFigures
const live = JSON.parse(docs('results/harm-live.json')) as LiveHarm
const byTau = JSON.parse(docs('results/tau-harm.json')) as HarmFigures
const pageOf = (shown: HarmFigures) => harmPage(shown, live, byTau)
const alone = figures.rows.filter(({ gateways }) => gateways === undefined)
const [light, single] = [true, false].map(is => alone.filter(({ batch }) => batch < 8 === is)) as [
  HarmRow[],
  HarmRow[],
]
const mean = (rows: readonly HarmRow[]) => rows.reduce((sum, { p50 }) => sum + p50.mean, 0) / rows.length

describe('docs/evidence/harm.md', () => {
  it('is generated from the saved results: run `npm run build && npm run docs` if not', () => {
    expect(docs('harm.md')).toBe(pageOf(figures))
  })

  it('covers both mixes, three loads and all artifacts, with ten seeds', () => {
    const distinct = (of: (row: HarmRow) => unknown) => new Set(single.map(of)).size
    expect(figures.seeds).toBe(10)
    expect([distinct(({ mix }) => mix), distinct(({ rate }) => rate)]).toEqual([2, 3])
    expect([distinct(({ artifact }) => artifact), distinct(({ policy }) => policy)]).toEqual([5, 4])
    const batches = single.map(({ batch }) => batch)
    expect(Math.min(...batches)).toBeLessThan(12)
    expect(Math.max(...batches)).toBeGreaterThan(40)
    expect(new Set(light.map(({ rate }) => rate)).size).toBe(3)
    expect(Math.min(...light.map(({ batch }) => batch))).toBeLessThan(3)
  })

  it('shows that eldr and union keep the bound in every cell, also under light load, and band does not', () => {
    const above = figures.rows.filter(({ p50, p99 }) => p50.mean > 0.01 || p99.mean > 0.03)
    expect(new Set(above.map(({ policy }) => policy))).toEqual(new Set(['band']))
    expect(pageOf(figures)).toContain('**+')
  })

  it('shows that eldr keeps the gain of band with a matching artifact', () => {
    const matched = single.filter(({ artifact }) => artifact === 'matched')
    const of = (name: string) => mean(matched.filter(({ policy }) => policy === name))
    expect(of('eldr')).toBeLessThan(0.95 * of('band'))
  })

  it('says in which cells eldr and union keep less than 95 % of the gain of band', () => {
    const gains = gainsKept(single)
    expect(gains).toHaveLength(2 * 3 * 3)
    const page = pageOf(figures)
    for (const { row, band, share, met } of gains) {
      expect([band.policy, band.mix, band.rate]).toEqual(['band', row.mix, row.rate])
      expect(share).toBeCloseTo(row.p50.mean / band.p50.mean, 12)
      expect(met).toBe(share >= 0.95)
      expect(page).toContain(`${(100 * share).toFixed(1)} %, ${met ? 'met' : '**missed**'}`)
    }
    const [, missed = ''] = /^Missed at (.*?)\. /m.exec(page)!
    for (const { row, met } of gains.filter(({ row: { policy } }) => policy === 'union'))
      expect(missed.includes(`${row.mix}, batch ${row.batch.toFixed(0)}`)).toBe(!met)
    // Only the smallest batches miss it.
    expect(new Set(gains.filter(({ met }) => !met).map(({ row }) => row.rate))).toEqual(new Set([300]))
  })

  it('shows median and tail of eldr and band for three values of τ, at three loads of both mixes', () => {
    const distinct = (of: (row: HarmRow) => unknown) => new Set(byTau.rows.map(of)).size
    expect(distinct(({ policy }) => policy)).toBe(6)
    expect([distinct(({ mix }) => mix), distinct(({ rate }) => rate)]).toEqual([2, 3])
    expect(pageOf(figures)).toContain('| `eldr@0.05` | `eldr` | `eldr@0.2` |')
  })

  it('has the figures that the hand-written pages quote', () => {
    const page = (name: string) => docs(`../${name}`)
    const worst = (name: string, of: 'p50' | 'p99') =>
      100 * Math.max(...figures.rows.filter(({ policy }) => policy === name).map(row => row[of].mean))
    const kept = gainsKept(single)
      .filter(({ row }) => row.policy === 'eldr')
      .map(({ share }) => 100 * share)
    expect(page('guides/policies.md')).toContain(`p99 rose by up to ${worst('band', 'p99').toFixed(0)} %`)
    expect(page('start/concepts.md')).toContain(
      `cost ${worst('eldr', 'p50').toFixed(1)} % at p50 and ${worst('eldr', 'p99').toFixed(1)} % at p99`,
    )
    expect(page('start/concepts.md')).toContain(
      `keeps ${Math.min(...kept).toFixed(0)} to ${Math.max(...kept).toFixed(0)} % of`,
    )
  })

  it('says so if a policy keeps the gain in every cell, or if band is above the bound', () => {
    const changed = (change: (row: HarmRow) => HarmRow) =>
      pageOf({ ...figures, rows: figures.rows.map(change) })
    const best = { mean: -0.2, half: 0, count: 10 }
    expect(changed(row => (row.policy === 'band' ? row : { ...row, p50: best }))).toContain(
      'Met in every cell.',
    )
    const bad = { mean: 0.1, half: 0, count: 10 }
    expect(changed(row => (row.policy === 'band' ? { ...row, p99: bad } : row))).toContain(
      'The bound is the reason',
    )
  })

  it('shows that a swapped artifact costs no more than the bound on the embedded cluster, except under band', () => {
    const tpotOf = (name: string) => live.cells.find(({ policy }) => policy === name)!.live.tpotMs
    const [base, band] = [tpotOf('jsq'), tpotOf('band')]
    for (const { p50, p99 } of [tpotOf('eldr'), tpotOf('union')]) {
      expect(p50).toBeLessThan(1.01 * base.p50)
      expect(p99).toBeLessThan(1.03 * base.p99)
    }
    expect(band.p50).toBeGreaterThan(1.2 * base.p50)
    // The simulator predicts each change of the median to within two points.
    const [first] = live.cells
    for (const cell of live.cells) {
      const changes = [cell.live, cell.simulated].map(
        ({ tpotMs }, at) => tpotMs.p50 / [first!.live, first!.simulated][at]!.tpotMs.p50,
      )
      expect(Math.abs(changes[0]! - changes[1]!)).toBeLessThan(0.02)
    }
    expect(live.cells.every(({ live: { requests } }) => requests.failed === 0)).toBe(true)
  })
})
