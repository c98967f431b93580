/** docs/evidence/experiment.md: the page, and what it claims about the intervals of `eldr experiment`. */
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import {
  type ExperimentFigures,
  experimentPage,
  type LiveExperiment,
  type ShadowFigures,
} from '../src/report/experiment-page.ts'
import { effectsOf, outcomeOf } from '../src/sim/switchback-analysis.ts'

const docs = (name: string) => readFileSync(new URL(`../docs/evidence/${name}`, import.meta.url), 'utf8')
const results = JSON.parse(docs('results/experiment.json')) as ExperimentFigures
const live = JSON.parse(docs('results/experiment-live.json')) as LiveExperiment[]
const judged = JSON.parse(docs('results/experiment-verdicts.json')) as ExperimentFigures
const shadow = JSON.parse(docs('results/shadow.json')) as ShadowFigures
const same = results.cases.filter(({ base, policy }) => base === policy)
const different = results.cases.filter(({ base, policy }) => base !== policy)

describe('docs/evidence/experiment.md', () => {
  it('is generated from the saved results: run `npm run build && npm run docs` if not', () => {
    expect(docs('experiment.md')).toBe(experimentPage({ figures: results, judged, live, shadow }))
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

  it('shows runs on the embedded cluster of less than 10 minutes, which agree with the simulation', () => {
    for (const { command, result } of live) {
      const [, slot, slots] = /--slot (\d+) .*--slots (\d+)/.exec(command)!
      expect(Number(slot) * Number(slots)).toBeLessThan(600)
      const p50 = result.comparisons[0]!.effects.find(({ figure }) => figure === 'TPOT p50')!
      expect(p50.high).toBeLessThan(0)
    }
    expect(live.map(({ result }) => result.comparisons[0]!.outcome)).toContain('better')
  })

  it('shows a verdict in about 5 % of the runs of a policy against itself, and none that says worse of union', () => {
    const equal = judged.cases.filter(({ base, policy }) => base === policy)
    const runs = equal.reduce((sum, each) => sum + each.runs, 0)
    const verdicts = equal.reduce((sum, each) => sum + each.runs - each.verdicts!.undecided, 0)
    // 1.64 standard errors above 5 %: what chance allows in so few runs.
    expect(verdicts / runs).toBeLessThan(0.05 + 1.64 * Math.sqrt((0.05 * 0.95) / runs))
    const poisson = judged.cases.find(({ base, policy }) => base !== policy)
    expect(poisson!.verdicts).toMatchObject({ worse: 0, mixed: 0 })
    expect(poisson!.verdicts!.better / poisson!.runs).toBeGreaterThan(0.8)
  })

  it('shows what `eldr experiment --json` wrote: the slots give the effects', () => {
    for (const { result } of live) {
      const { base, policy, effects, outcome } = result.comparisons[0]!
      expect(effectsOf(result.slots, 2, base, policy)).toEqual(effects)
      expect(outcomeOf(effects)).toBe(outcome)
    }
  })

  it('shows the cost of shadow policies as measured, and says what that does not show', () => {
    expect(shadow.rounds).toBeGreaterThanOrEqual(4)
    expect(shadow.ratio).toBeLessThan(1.1)
    const says = /was not reached|reaches above it/.test(docs('experiment.md'))
    expect(says).toBe(shadow.high > 1.1 || shadow.beside.requestsPerSecond < 1_000)
  })
})
