import { describe, expect, it } from 'vitest'
import { fitFixture } from '../../test/browser/fit-fixture.ts'
import type { FitSummary } from '../fit/summary.ts'
import { purity, resultInWords, rhoOfAllLayers, sizeRange, traceName, whyChosen } from './fit-words.ts'

const { summary } = fitFixture()
const quality = (name: FitSummary['chosen'], rho: number, servable = true) => ({
  name,
  rho,
  pairs: 100,
  requests: 50,
  servable,
})

describe('resultInWords', () => {
  it('names transform, layers, ρ and clusters', () => {
    expect(resultInWords({ ...summary, rho: 0.742 })).toBe(
      'The count-idf transform over 6 of 16 layers predicts which requests decode alike with ρ\u00a0=\u00a00.742 (over all layers: 0.723). 1,000 requests form 8 balanced clusters of 125 requests, one per decode worker; the mean similarity to the centroid is 0.875.',
    )
  })

  it('says so when ρ was not measured', () => {
    const { rho, ...unmeasured } = summary
    expect(rho).toBeDefined()
    expect(resultInWords({ ...unmeasured, transforms: [], curves: [] })).toContain('was not measured')
  })
})

describe('whyChosen', () => {
  it('names the runner-up when layers were searched for several', () => {
    expect(whyChosen(summary)).toMatch(
      /^Of the 4 transforms that a hand-off can carry, layers were searched for the best 2, and count-idf has the highest ρ \(count: 0\.7\d\d\)\.$/,
    )
  })

  it('compares on the kept layers when none were searched', () => {
    const best = {
      ...summary,
      curves: [],
      chosen: 'count' as const,
      transforms: [quality('count', 0.7), quality('sqrt', 0.6)],
    }
    expect(whyChosen(best)).toBe(
      'count is the best on the kept layers of the 2 transforms that a hand-off can carry.',
    )
  })

  it('says when a requested transform is not the best, and when one cannot be served', () => {
    const transforms = [quality('count', 0.7), quality('sqrt', 0.6), quality('gate-prob', 0.8, false)]
    expect(
      whyChosen({
        ...summary,
        curves: [],
        transforms,
        chosen: 'sqrt',
        asked: { transform: 'sqrt', layers: 'all' },
      }),
    ).toContain('sqrt was requested; over all layers count has')
    expect(whyChosen({ ...summary, curves: [], transforms, chosen: 'count' })).toContain(
      'gate-prob has a higher ρ (0.800), but no hand-off carries gate scores',
    )
    expect(whyChosen({ ...summary, curves: [], transforms, chosen: 'gate-prob' })).toContain('is for study')
    expect(whyChosen({ ...summary, curves: [], transforms: [], chosen: 'count' })).toContain(
      'without comparison',
    )
  })
})

describe('shared phrases', () => {
  it('takes ρ of all layers from the curve, otherwise from the comparison', () => {
    expect(rhoOfAllLayers(summary)).toBe(summary.curves[0]!.rho.at(-1))
    expect(rhoOfAllLayers({ ...summary, curves: [] })).toBe(0.711)
  })

  it('give sizes, purity and the name of the trace', () => {
    expect([sizeRange([62, 63]), sizeRange([5]), sizeRange([])]).toEqual([
      '62–63 requests',
      '5 requests',
      'no requests',
    ])
    const cluster = (...domains: number[]) => ({ size: 10, meanSimilarity: 1, domains })
    expect(purity({ ...summary, clusters: [cluster(10, 0), cluster(4, 6)] })).toBe(0.8)
    expect(purity({ ...summary, clusters: [cluster()] })).toBeUndefined()
    expect(traceName({ ...summary, source: { ...summary.source, file: 'C:\\traces\\a.safetensors' } })).toBe(
      'a.safetensors',
    )
  })
})
