/** The saved results of drift scenarios, and the page generated from them. */
import { readFileSync, statSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { POLICIES } from '../policy/decode-policy.ts'
import { LOAD_BALANCERS } from '../sim/compare.ts'
import { keepsBound } from '../sim/drift/bound.ts'
import { SCENARIOS } from '../sim/drift/scenario.ts'
import { driftPage } from './drift-page.ts'
import { type DriftResults, packDrift, unpackDrift } from './drift-results.ts'
import { driftTables } from './drift-tables.ts'
import type { StepCostFigures } from './step-cost-section.ts'

const file = new URL('../../docs/evidence/results/drift.json', import.meta.url)
const saved = JSON.parse(readFileSync(file, 'utf8')) as DriftResults
const stepCost = JSON.parse(readFileSync(new URL('step-cost.json', file), 'utf8')) as StepCostFigures
const small = JSON.parse(readFileSync(new URL('drift-small.json', file), 'utf8')) as DriftResults[]
const page = readFileSync(new URL('../../docs/evidence/drift.md', import.meta.url), 'utf8')
/** As the command has them, with paths. */
const options = {
  ...saved,
  traffics: saved.traffics.map(traffic => ({
    ...traffic,
    evaluation: `/somewhere/${traffic.name}`,
    calibration: '/somewhere/else',
  })),
  seeds: Array.from({ length: saved.seeds }, (_, seed) => seed),
}

describe('docs/evidence/drift.md', () => {
  it('is generated from the saved results: run `npm run build && npm run docs` if not', () => {
    expect(page).toBe(driftPage(saved, small, stepCost))
  })

  it('has every scenario and every policy, on two mixes at four rates with ten seeds', () => {
    expect(saved.scenarios).toEqual(SCENARIOS)
    expect(saved.policies).toEqual([...POLICIES, 'union@learnt'])
    expect([saved.traffics.length, saved.rates.length, saved.seeds]).toEqual([2, 4, 10])
    expect(saved.cells.length).toBe(SCENARIOS.length * 2 * 4 * saved.policies.length)
    for (const { name } of SCENARIOS) expect(page).toContain(`\n## ${name}\n`)
  })

  it('has small clusters with a slow worker, where all policies with a bound keep it', () => {
    expect(small.map(({ topology }) => topology)).toEqual(['2P4D', '1P2D'])
    for (const results of small) {
      expect(results.policies).toEqual(['jsq', 'eldr', 'union', 'union@learnt'])
      expect(results.scenarios.map(({ name }) => name)).toEqual(['slow', 'foreign_slow'])
      for (const one of unpackDrift(results)) expect(keepsBound(one)).not.toBe(false)
    }
    const worse = { ...small[0]!, cells: small[0]!.cells.map(cell => cell.with(4, 0.02)) }
    expect(driftPage(saved, [worse], stepCost)).toContain('| union@learnt | **missed** |')
  })

  it('says which policies keep the bound and which miss it', () => {
    for (const policy of POLICIES.filter(name => !LOAD_BALANCERS.includes(name)))
      expect(page.split('## Run it')[0]).toContain(`\`${policy}\``)
  })
})

describe('saved results', () => {
  it('are small and name no folder', () => {
    expect(statSync(file).size).toBeLessThan(60_000)
    expect(JSON.stringify(packDrift({ ...options, cells: unpackDrift(saved) }))).not.toContain('somewhere')
  })

  it('are the same after unpacking and packing', () => {
    expect(packDrift({ ...options, cells: unpackDrift(saved) })).toEqual(saved)
  })

  it('of one seed have no intervals', () => {
    const cells = unpackDrift(saved).map(one => ({ ...one, p50: { mean: 1, half: NaN, count: 1 } }))
    const one = packDrift({ ...options, seeds: [0], cells })
    expect(unpackDrift(one)[0]!.p50).toEqual({ mean: 1, half: NaN, count: 1 })
  })
})

describe('the terminal tables', () => {
  const plain = { width: 200, live: false, write: () => undefined }
  const same = (text: string) => text
  const terminal = { ...plain, bold: same, dim: same, accent: same, warn: same }

  it('have a row for every mix and policy, the bound, and a summary of the worst cells', () => {
    const text = driftTables(options, unpackDrift(saved), 3, terminal)
    const lines = text.split('\n')
    for (const policy of POLICIES)
      for (const traffic of ['task', 'lang'])
        expect(
          lines.filter(line => line.startsWith(`  ${traffic} ${policy} `)).length,
        ).toBeGreaterThanOrEqual(SCENARIOS.length)
    expect(text).toContain('at most +1 % p50 and +3 % p99')
    expect(text).toContain('worst change of each policy')
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(120)
  })
})
