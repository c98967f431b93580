import { describe, expect, it } from 'vitest'
import { createHistogram, record } from '../sim/histogram.ts'
import { compare } from './compare.ts'
import type { Exchange } from './exchange.ts'
import { figuresOf, quantiles } from './figures.ts'
import { type BenchResult, benchResult } from './result.ts'
import type { LoadRun } from './run-load.ts'

const one = (index: number, more: Partial<Exchange> = {}): Exchange => ({
  index,
  counted: true,
  plannedMs: 100 * index,
  sentMs: 100 * index + 1,
  firstMs: 100 * index + 50,
  lastMs: 100 * index + 450,
  endedMs: 100 * index + 460,
  events: 5,
  gapsMs: [],
  ...more,
})

function runOf(exchanges: readonly Exchange[], more: Partial<LoadRun> = {}): LoadRun {
  const gapsUs = createHistogram()
  record(gapsUs, 100_000, 4)
  return {
    exchanges,
    gapsUs,
    isOpen: true,
    startMs: 0,
    endMs: 1000,
    loopDelayMs: { p99: 1, max: 2 },
    cpuShare: 0.1,
    ...more,
  }
}

describe('figuresOf', () => {
  it('measures from the planned time and takes token counts from the server if it sends them', () => {
    const figures = figuresOf(runOf([one(0), one(1, { usage: { promptTokens: 8, completionTokens: 11 } })]))
    expect(figures.ttftMs).toMatchObject({ count: 2, mean: 50, p50: 50 })
    expect(figures.e2eMs.mean).toBe(450)
    expect([figures.tpotMs.p50, figures.tpotMs.mean]).toEqual([70, 70]) // 400/4 and 400/10
    expect(figures.itlMs.p50).toBeCloseTo(100, 0)
    expect(figures.tokens).toEqual({ from: 'both', promptMean: null, outputMean: 8 })
    expect(figures.seconds).toBeCloseTo(0.56)
    expect(figures.throughput.outputTokensPerSecond).toBeCloseTo(16 / 0.56)
  })

  it('leaves out requests that do not count, and has no TPOT for a single token', () => {
    const figures = figuresOf(
      runOf([one(0, { counted: false, firstMs: 9999 }), one(1, { events: 1, lastMs: 150 })]),
    )
    expect(figures.requests).toEqual({ sent: 2, counted: 1, ok: 1, failed: 0 })
    expect(figures.ttftMs.mean).toBe(50)
    expect(figures.tpotMs).toMatchObject({ count: 0, p50: NaN })
  })

  it('groups errors by kind, the most frequent first, and leaves out their times', () => {
    const failed = (kind: 'reset' | 'http_503', message: string) => ({
      failure: { kind, message },
      firstMs: NaN,
      lastMs: NaN,
      events: 0,
    })
    const figures = figuresOf(
      runOf([
        one(0),
        one(1, failed('reset', 'a')),
        one(2, failed('http_503', 'b')),
        one(3, failed('http_503', 'c')),
      ]),
    )
    expect(figures.errors).toEqual([
      { kind: 'http_503', count: 2, example: 'b' },
      { kind: 'reset', count: 1, example: 'a' },
    ])
    expect(figures.requests).toMatchObject({ ok: 1, failed: 3 })
    expect(figures.ttftMs.count).toBe(1)
  })

  it('counts requests as good if they met the whole SLO and did not fail', () => {
    const slow = one(1, { lastMs: 100 + 50 + 800 })
    const late = one(2, { firstMs: 200 + 90, lastMs: 200 + 490 })
    const failed = one(3, { failure: { kind: 'reset', message: '' } })
    const figures = figuresOf(runOf([one(0), slow, late, failed]), { ttftMs: 60, tpotMs: 100 })
    expect(figures.goodput).toMatchObject({ share: 0.25, slo: { ttftMs: 60, tpotMs: 100 } })
    expect(figuresOf(runOf([one(0)])).goodput).toBeNull()
  })

  it('tells whether the client kept up, from its send delay and event loop delay', () => {
    expect(figuresOf(runOf([one(0)])).client).toMatchObject({ keptUp: true, sendLagMs: { p99: 1 } })
    expect(figuresOf(runOf([one(0, { sentMs: 30 })])).client).toMatchObject({
      keptUp: false,
      sendLagMs: { max: 30 },
    })
    expect(figuresOf(runOf([one(0)], { loopDelayMs: { p99: 50, max: 60 } })).client.keptUp).toBe(false)
  })

  it('computes quantiles as NumPy does', () => {
    expect(quantiles([4, 1, 3, 2])).toEqual({
      count: 4,
      mean: 2.5,
      p50: 2.5,
      p90: 3.7,
      p99: 3.9699999999999998,
    })
  })

  it('has no numbers for a run without requests', () => {
    expect(figuresOf(runOf([]))).toMatchObject({
      requests: { counted: 0 },
      seconds: 0,
      tokens: { from: 'none' },
      ttftMs: { p50: NaN },
    })
  })
})

describe('compare', () => {
  const setup = {
    url: 'http://a/v1',
    api: 'chat',
    model: 'm',
    load: { loop: 'open', rate: 5 },
    prompts: { kind: 'synthetic' },
    limits: {},
    warmUp: {},
    seed: 1,
  }
  const result = (exchanges: readonly Exchange[], more: object = {}): BenchResult =>
    benchResult({ ...setup, ...more }, figuresOf(runOf(exchanges)), new Date(0))

  it('has B over A for every figure, and says if nothing else differs', () => {
    const { ratios, differences } = compare(result([one(0)]), result([one(0, { firstMs: 100, lastMs: 450 })]))
    expect(ratios.find(({ name }) => name === 'TTFT p50')).toEqual({
      name: 'TTFT p50',
      unit: 'ms',
      a: 50,
      b: 100,
      ratio: 2,
    })
    expect(ratios.find(({ name }) => name === 'TPOT p50')!.ratio).toBeCloseTo(350 / 400)
    expect(differences).toEqual([])
  })

  it('lists differences between the setups, and warnings', () => {
    const other = result([one(0, { sentMs: 60 }), one(1, { failure: { kind: 'reset', message: '' } })], {
      seed: 2,
      load: { loop: 'open', rate: 9 },
    })
    const { differences, cautions } = compare(result([one(0)]), other)
    expect(differences).toEqual([
      { key: 'setup.load.rate', a: '5', b: '9' },
      { key: 'setup.seed', a: '1', b: '2' },
    ])
    expect(cautions.join('\n')).toMatch(
      /client of B could not keep up[^]*1 of 2 requests of B failed[^]*few for a p99/,
    )
  })
})
