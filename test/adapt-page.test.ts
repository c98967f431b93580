/** docs/evidence/adapt.md: the page, and the bars that it shows. */
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { type AdaptFigures, type AdaptLive, adaptPage } from '../src/report/adapt-page.ts'
import { meanInterval } from '../src/sim/confidence.ts'

const docs = (name: string) => readFileSync(new URL(`../docs/evidence/${name}`, import.meta.url), 'utf8')
const figures = JSON.parse(docs('results/adapt.json')) as AdaptFigures
const live = JSON.parse(docs('results/adapt-live.json')) as AdaptLive

describe('docs/evidence/adapt.md', () => {
  it('is generated from the saved results: run `npm run build && npm run docs` if not', () => {
    expect(docs('adapt.md')).toBe(adaptPage(figures, live))
  })

  it('shows at least 20 swaps whose gains are those that were predicted, within two points', () => {
    const swaps = figures.swaps.filter(({ accepted }) => accepted)
    expect(figures.swaps.length).toBeGreaterThanOrEqual(20)
    expect(swaps.length).toBeGreaterThanOrEqual(0.8 * figures.swaps.length)
    for (const { gain, realised } of swaps) expect(Math.abs(realised.mean - gain)).toBeLessThan(0.02)
    expect(new Set(swaps.map(({ judgedBy }) => judgedBy)).size).toBe(2)
  })

  it('shows that a refit on the sample comes within two points of a fit made for the traffic', () => {
    for (const { own, realised } of figures.swaps) expect(own.mean - realised.mean).toBeLessThan(0.02)
  })

  it('shows a long run in which nothing is lost and both swaps are as good as a fit, within two points', () => {
    expect(live.minutes).toBeGreaterThanOrEqual(20)
    expect(live.ends.lost).toBe(0)
    expect(live.phases.map(({ traffic }) => traffic)).toEqual(['lang', 'task'])
    for (const { swapSeconds, worse } of live.phases) {
      expect(swapSeconds).toBeLessThan(180)
      expect(worse).toBeLessThan(0.02)
    }
  })

  it('shows that matched traffic is never worse by more than half a percent', () => {
    const cells = new Set(figures.matched.map(({ mix, policy }) => `${mix} ${policy}`))
    expect(cells.size).toBe(4)
    for (const cell of cells) {
      const own = figures.matched.filter(({ mix, policy }) => `${mix} ${policy}` === cell)
      const { mean, half } = meanInterval(own.map(({ change }) => change))
      expect(mean + half).toBeLessThan(0.005)
    }
  })

  it('shows at most one false alarm in each simulated week', () => {
    for (const { weekAlarms, dayAlarms, delayMax } of figures.drift) {
      expect(weekAlarms).toBeLessThanOrEqual(1)
      expect(dayAlarms).toBeLessThanOrEqual(1)
      expect(delayMax).toBeLessThan(400)
    }
  })
})
