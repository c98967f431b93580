import { describe, expect, it } from 'vitest'
import { sweepFixture, type SweepShape } from '../../test/browser/simulation-fixture.ts'
import { simulationTables, type TableOptions } from './simulation-tables.ts'
import { columnsOf, type Terminal } from './terminal.ts'

const plain = (text: string) => text
const terminal: Terminal = {
  width: Infinity,
  live: false,
  bold: plain,
  dim: plain,
  accent: plain,
  warn: plain,
  write: () => undefined,
}
const shown = (shape: Partial<SweepShape> = {}, options: Partial<TableOptions> = {}) =>
  simulationTables(sweepFixture(shape), { seconds: 3, withCost: false, ...options }, terminal)
const one = { rates: [400] }

describe('the tables of a simulation', () => {
  it('have a table per rate, in the given order, with gains against the load balancer', () => {
    const text = shown({ rates: [400, 200] })
    expect([...text.matchAll(/(\d+) requests per second/g)].map(([, rate]) => rate)).toEqual(['400', '200'])
    expect(text).toMatch(/policy {2}TPOT p50 +gain {2}TPOT p99 +gain {2}experts {2}imbalance {2}tokens\/s/)
    expect(text).toMatch(/jsq +13.05 ms +· +18.27 ms +· +80.0/)
    expect(text).toMatch(/union +11.23 ms +−13.9 ± 0.1 %/)
  })

  it('print values that all policies share once, and all columns for a single policy', () => {
    expect(shown(one)).toContain('\n  every policy: TTFT p50 16.0 ms, batch 16.0\n')
    expect(shown({ ...one, policies: ['eldr'] })).toMatch(
      /policy {2}TPOT p50 {2}TPOT p99 {2}TTFT p50 {2}experts {2}batch {2}imbalance {2}tokens\/s/,
    )
  })

  it('list reasons if a policy has several', () => {
    expect(shown(one).match(/^ {2}\w+: \w+ \d+ %.*$/gm)).toEqual(['  eldr: band_hit 83 %, band_spill 17 %'])
    expect(shown({ ...one, policies: ['jsq', 'union'] })).not.toContain('least_cost')
  })

  it('show goodput and cost on request, instead of the columns they are derived from', () => {
    expect(shown(one)).not.toMatch(/goodput|\$\/M/)
    expect(shown({ ...one, slo: { tpotMs: 20 } })).toMatch(/imbalance {2}goodput\n/)
    expect(shown(one, { withCost: true })).toContain(
      'every policy: TTFT p50 16.0 ms, batch 16.0, $/M tokens 0.868',
    )
    expect(shown({ ...one, policies: ['eldr'], slo: { tpotMs: 20 } }, { withCost: true })).toMatch(
      /experts {2}imbalance {2}goodput {2}\$\/M tokens\n/,
    )
  })

  it('have no TTFT without prefill, no gains without a load balancer, and the fullest rank with several ranks', () => {
    expect(shown({ ...one, topology: '16D' })).not.toContain('TTFT')
    expect(shown({ ...one, policies: ['eldr', 'union'] })).not.toContain('gain')
    expect(shown({ ...one, topology: '2P8D×EP4' })).toContain('fullest rank')
  })

  it('stay within 120 columns with long names and all options', () => {
    const policies = ['random', 'power_of_two', 'round_robin', 'eldr@0.123456789', 'union@true']
    const simulated = sweepFixture({
      policies,
      slo: { tpotMs: 1, ttftMs: 2 },
      topology: '2P8D×EP4',
      rates: [1234.5],
    })
    const study = {
      ...simulated.study,
      trace: 'a word '.repeat(60),
      placement: 'cluster' as const,
      prefillPolicy: 'least_loaded' as const,
    }
    const text = simulationTables({ ...simulated, study }, { seconds: 1, withCost: true }, terminal)
    expect(Math.max(...text.split('\n').map(columnsOf))).toBeLessThanOrEqual(120)
    expect(text).toContain('cluster placement, prefill by least_loaded')
  })

  it('escape control characters in file names', () => {
    const simulated = sweepFixture(one)
    const text = simulationTables(
      { ...simulated, study: { ...simulated.study, trace: 'a\u001b[31mb' } },
      { seconds: 1, withCost: false },
      terminal,
    )
    expect(text).toContain('a�[31mb')
  })

  it('name the file of recorded arrivals and the number of requests', () => {
    const simulated = sweepFixture(one)
    const study = { ...simulated.study, requests: 9999, workload: { file: 'calls.csv' } }
    const text = simulationTables({ ...simulated, study }, { seconds: 1, withCost: false }, terminal)
    expect(text.replaceAll('\n', ' ')).toContain(
      '4,000 requests per run, arrivals and lengths of calls.csv, 3 seeds.',
    )
  })
})
