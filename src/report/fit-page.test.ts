import { describe, expect, it } from 'vitest'
import { extremeFixture, fitFixture } from '../../test/browser/fit-fixture.ts'
import { brokenNumbers, parse, type Parsed } from '../../test/browser/well-formed.ts'
import type { FitFigures, FitSummary } from '../fit/summary.ts'
import { fitPage } from './fit-page.ts'

const { summary, figures } = fitFixture()
const textOf = (elements: readonly Parsed[]) =>
  elements.flatMap(({ name, text }) => (name === 'style' ? [] : [text])).join('\n')
const usual = fitPage(summary, figures)

/** A page is sound: well-formed, without broken numbers, without anything that runs or loads. */
function sound(html: string): readonly Parsed[] {
  const elements = parse(html)
  expect(brokenNumbers(elements)).toEqual([])
  const names = new Set(elements.map(({ name }) => name))
  for (const name of ['script', 'link', 'img', 'iframe', 'object', 'a', 'base', 'form'])
    expect(names).not.toContain(name)
  const handlers = elements
    .flatMap(({ attributes }) => Object.keys(attributes))
    .filter(key => /^on|^href$|^src$|^style$/.test(key))
  expect(handlers).toEqual([])
  return elements
}

describe('fitPage', () => {
  it('is a well-formed page that names its source', () => {
    const text = textOf(sound(usual))
    for (const part of [
      'Made-30B-A3B, task',
      '/data/traces/synthetic.calibration.safetensors',
      '8b93874a3145c5c6…',
      '16 layers × 64 experts, top-8',
      '1,000, task workload',
      'eldr 0.1.0',
      'The count-idf transform over 6 of 16 layers',
      '8 balanced clusters of 125 requests',
      '12 of 1,000 requests have no signature and were left out.',
    ]) {
      expect(text).toContain(part)
    }
  })

  it('names the corresponding figures of the paper', () => {
    const text = textOf(parse(usual))
    for (const number of [1, 3, 7, 8, 9, 15]) expect(text).toContain(`paper Fig. ${number}`)
  })

  it('forbids scripts and external resources, and has both themes', () => {
    const policy = parse(usual).find(
      ({ attributes }) => attributes['http-equiv'] === 'Content-Security-Policy',
    )
    expect(policy!.attributes['content']).toMatch(/^default-src 'none'; style-src 'unsafe-inline'/)
    expect(usual).toContain('<meta name="color-scheme" content="light dark"/>')
    expect(usual).toContain('prefers-color-scheme:dark')
    expect(usual).not.toMatch(/url\(|@import|https?:/)
  })

  it('gives every chart a title and a description', () => {
    const elements = parse(usual)
    const charts = elements.filter(({ attributes }) => attributes['class']?.startsWith('chart'))
    expect(charts.map(({ attributes }) => attributes['aria-labelledby'])).toEqual([
      'transforms-title',
      'layers-title',
      'plane-title',
      'activation-title',
      'experts-title',
      'balance-title',
      'similarity-title',
      'placement-title',
      'stages-title',
    ])
    const messages = elements.filter(({ name }) => name === 'desc').map(({ text }) => text)
    expect(messages).toHaveLength(charts.length)
    expect(messages.filter(message => message.length < 20)).toEqual([])
  })

  it('is the same, byte for byte, for the same fit', () => {
    expect(fitPage(structuredClone(summary), structuredClone(figures))).toBe(usual)
  })

  it('escapes hostile names wherever they appear', () => {
    const hostile = `</title></style><script>alert(1)</script>"'&<img src=x onerror=y>`
    const names = fitFixture({ domains: [hostile, '" onload="z', '${x}', '&lt;'] })
    const { source } = names.summary
    const elements = sound(
      fitPage(
        {
          ...names.summary,
          source: { ...source, file: `/x/${hostile}`, model: hostile, workload: hostile, version: hostile },
          notes: [hostile],
          stages: [{ name: hostile, ms: 1 }],
        },
        names.figures,
      ),
    )
    expect(elements.find(({ name }) => name === 'h1')!.text).toContain(
      '</title></style><script>alert(1)</script>',
    )
    expect(textOf(elements)).toContain('" onload="z')
  })

  it('draws the largest shapes in less than 3 MB and says what is left out', () => {
    const extreme = extremeFixture()
    const html = fitPage(extreme.summary, extreme.figures)
    expect(Buffer.byteLength(html)).toBeLessThan(3e6)
    const text = textOf(sound(html))
    expect(text).toMatch(/[34],\d{3} of the 16,000 requests are drawn/)
    expect(text).toMatch(/4,000 of the 48,128 points are drawn/)
  })

  it('stays small with very many workers, domains and long names', () => {
    const many = fitFixture({
      workers: 5000,
      requests: 5000,
      domains: Array.from({ length: 200 }, (_, i) => `domain ${i} ${'x'.repeat(2000)}`),
    })
    const html = fitPage(many.summary, many.figures)
    expect(Buffer.byteLength(html)).toBeLessThan(3e6)
    expect(textOf(sound(html))).toContain('4,488 more rows not shown')
  })

  it('gives the reason where there is no data', () => {
    const { rho, placement, ...rest } = fitFixture({ domains: [] }).summary
    expect([rho, placement].includes(undefined)).toBe(false)
    const bare: FitSummary = {
      ...rest,
      transforms: [],
      curves: [],
      vanillaSizes: [],
      bestSimilarity: [],
      stages: [],
      notes: [],
    }
    const nothing: FitFigures = { pca: { points: [], centroids: [], explained: [0, 0] } }
    const text = textOf(sound(fitPage(bare, nothing)))
    expect(text.match(/^No data: .*$/gm)).toEqual([
      'No data: the trace has no decode data, so ρ cannot be measured',
      'No data: the trace has no decode data, so layers could not be compared',
      'No data: no request has a signature',
      'No data: the trace has no decode data',
      'No data: the trace names no domains',
      'No data: no request has a signature',
      'No data: no stage was timed',
    ])
  })

  it('draws an empty fit', () => {
    const empty = fitFixture({ domains: [], requests: 0, workers: 0, layers: 0, experts: 0 })
    expect(
      sound(fitPage({ ...empty.summary, clusters: [], curves: [], layers: [] }, empty.figures)).length,
    ).toBeGreaterThan(50)
  })

  it('leaves out numbers that are not finite', () => {
    const wrong = Number.NaN
    const broken: FitSummary = {
      ...summary,
      rho: wrong,
      meanSimilarity: wrong,
      transforms: summary.transforms.map(transform => ({ ...transform, rho: wrong })),
      curves: summary.curves.map(curve => ({ ...curve, rho: curve.rho.map(() => Infinity) })),
      bestSimilarity: [{ q: 0.5, value: wrong }],
      stages: [{ name: 'fit', ms: wrong }],
      placement: {
        ranks: 8,
        batch: 32,
        perCluster: [{ linear: wrong, global: 1, own: 0, ideal: -Infinity }],
      },
    }
    const points = figures.pca.points.map(point => ({ ...point, x: wrong }))
    const values: FitFigures = {
      pca: { points, centroids: [{ x: wrong, y: wrong }], explained: [wrong, wrong] },
      heat: { layer: 1, experts: [0, 1], rows: [{ domain: 'a', values: [wrong, Infinity] }] },
      activation: { correlation: wrong, points: [{ x: wrong, y: 1 }] },
    }
    expect(textOf(sound(fitPage(broken, values)))).toContain('ρ\u00a0=\u00a0–')
  })

  it('marks an unbalanced fit and a fit with given layers', () => {
    const text = textOf(sound(fitPage({ ...summary, balance: 'none', curves: [] }, figures)))
    expect(text).toContain('This fit is not balanced')
    expect(text).toContain('no data: layers were not searched: they were given')
  })
})
