/** docs/evidence/experiment.md: the page, and what it claims about the intervals of `eldr experiment`. */
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { type ExperimentFigures, experimentPage, type LiveExperiment } from '../src/report/experiment-page.ts'

const docs = (name: string) => readFileSync(new URL(`../docs/evidence/${name}`, import.meta.url), 'utf8')
const results = JSON.parse(docs('results/experiment.json')) as ExperimentFigures
const live = JSON.parse(docs('results/experiment-live.json')) as LiveExperiment
const same = results.cases.filter(({ base, policy }) => base === policy)
const different = results.cases.filter(({ base, policy }) => base !== policy)

describe('docs/evidence/experiment.md', () => {
  it('is generated from the saved results: run `npm run build && npm run docs` if not', () => {
    expect(docs('experiment.md')).toBe(experimentPage(results, live))
  })

  it('shows intervals that contain 0 in 92 to 98 % of 400 runs of a policy against itself', () => {
    const shares = Object.fromEntries(
      same.map(({ arrivals, runs, figures }) => [arrivals, figures.map(({ covers }) => covers / runs)]),
    )
    expect(same.map(({ runs }) => runs)).toEqual([400, 400])
    expect(Math.min(...shares['poisson']!)).toBeGreaterThanOrEqual(0.92)
    expect(Math.max(...shares['poisson']!)).toBeLessThanOrEqual(0.98)
    // Bursts of half a slot make them wider than they need be, never narrower.
    expect(Math.min(...shares['on_off']!)).toBeGreaterThanOrEqual(0.92)
  })

  it('shows that at least 90 of 100 runs find the lower TPOT p50 of union under Poisson arrivals', () => {
    const poisson = different.find(({ arrivals }) => arrivals === 'poisson')
    const { lower } = poisson!.figures.find(({ figure }) => figure === 'TPOT p50')!
    expect(poisson).toMatchObject({ base: 'jsq', policy: 'union', runs: 100 })
    expect(lower).toBeGreaterThanOrEqual(90)
  })

  it('shows a run on the embedded cluster, in less than 10 minutes, that agrees with the simulation', () => {
    const [, slot, slots] = /--slot (\d+) .*--slots (\d+)/.exec(live.command)!
    expect(Number(slot) * Number(slots)).toBeLessThan(600)
    const [poisson] = different
    for (const name of ['TPOT p50', 'TPOT p99']) {
      const { change, low, high } = live.effects.find(({ figure }) => figure === name)!
      const simulated = poisson!.figures.find(({ figure }) => figure === name)!
      expect(high).toBeLessThan(0)
      expect([low, simulated.change, high, change].every(value => value < 0)).toBe(true)
    }
  })
})
