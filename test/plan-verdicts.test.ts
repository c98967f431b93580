import { mkdtempSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { writeArtifact } from '../src/fit/artifact-write.ts'
import { planTables } from '../src/report/plan-tables.ts'
import { verdictInWords } from '../src/report/plan-words.ts'
import type { Terminal } from '../src/report/terminal.ts'
import { makePlan, type Plan, type PlanOptions } from '../src/sim/plan.ts'
import { openRefits } from '../src/sim/refits.ts'
import { openStudy } from '../src/sim/study-pool.ts'
import { fitFile } from './data.ts'
import { type SyntheticModel, writeSyntheticTrace } from './synthetic-traces.ts'
import { temporaryFolder } from './trace-support.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())
const file = (name: string) => join(folder.path, name)

const STRUCTURED: SyntheticModel = { layers: 2, experts: 64, topK: 4, domains: 4, preference: 8 }
const RANDOM: SyntheticModel = { ...STRUCTURED, preference: 1 }
/** So few experts that any larger batch fires all of them. */
const FEW_EXPERTS: SyntheticModel = { layers: 2, experts: 16, topK: 4, domains: 4, preference: 3 }

/** Step: 1 ms plus the given costs, with 24 layers. */
const profile = (
  decode: { baseUs: number; perActiveExpertUs: number },
  prefill = { baseUs: 1000, perTokenUs: 5 },
) => ({
  format: 'eldr.profile.v1',
  name: 'synthetic',
  provenance: { what: 'synthetic, for a test', notes: [] },
  shape: { layers: 24, experts: 64, topK: 4 },
  decode: { kind: 'linear', perRequestUs: 10, perLayerUs: 10, perContextKTokenUs: 0, ...decode },
  prefill,
  kv: { bytesPerToken: 1000, capacityTokens: 1_000_000, latencyUs: 100, gigabytesPerSecond: 50 },
})

async function makeTraces(name: string, model: SyntheticModel): Promise<void> {
  await writeSyntheticTrace(file(`${name}.calibration`), model, 160, 1)
  await writeSyntheticTrace(file(`${name}.evaluation`), model, 160, 2)
  await writeArtifact(
    file(`${name}.artifact`),
    (await fitFile(file(`${name}.calibration`), { workers: 4 })).artifact,
  )
}

beforeAll(async () => {
  await makeTraces('structured', STRUCTURED)
  await makeTraces('random', RANDOM)
  await makeTraces('few', FEW_EXPERTS)
  writeFileSync(file('experts.json'), JSON.stringify(profile({ baseUs: 1000, perActiveExpertUs: 10 })))
  writeFileSync(file('base.json'), JSON.stringify(profile({ baseUs: 12_000, perActiveExpertUs: 1 })))
  writeFileSync(
    file('prefill.json'),
    JSON.stringify(profile({ baseUs: 1000, perActiveExpertUs: 10 }, { baseUs: 20_000, perTokenUs: 50 })),
  )
})

type Asked = Partial<Omit<PlanOptions, 'study'>> & {
  readonly trace: string
  readonly profile?: string
  readonly topology?: string
}

async function planOf({ trace, profile = 'experts', topology = '4D', ...asked }: Asked): Promise<Plan> {
  const study = {
    trace: file(`${trace}.evaluation`),
    artifact: file(`${trace}.artifact`),
    profile: file(`${profile}.json`),
    topology,
    requests: 1500,
    arrivals: 'poisson',
    rows: 'passes',
  } as const
  const pool = openStudy(study)
  const refits = await openRefits(study.artifact, mkdtempSync(file('refits-')))
  const given = {
    study,
    slo: { tpotMs: 10 },
    policies: ['jsq', 'eldr', 'union'],
    seeds: 2,
    pricePerGpuHour: 2,
    isPriceGiven: true,
    ...asked,
  }
  return makePlan(given, { pool, refits }).finally(pool.close)
}

const found = ({ verdict }: Plan, kind: string) => verdict.checks.find(check => check.kind === kind)!.value
const plain: Terminal = {
  width: 100,
  live: false,
  bold: t => t,
  dim: t => t,
  accent: t => t,
  warn: t => t,
  write: () => undefined,
}

describe('a plan for requests of different domains', () => {
  let plan: Plan
  beforeAll(async () => {
    plan = await planOf({ trace: 'structured', rate: 300 })
  })
  const of = (variant: string) => plan.results.find(result => result.variant === variant)!

  it('says that routing by experts pays, how much and why', () => {
    expect(plan.verdict.answer).toBe('pays')
    expect(plan.verdict.reasons).toEqual([])
    expect(plan.verdict.gain).toBeGreaterThan(0.05)
    expect(found(plan, 'no_structure')).toBeGreaterThan(0.1)
    expect(found(plan, 'weak_signature')).toBeGreaterThan(0.3)
    expect(verdictInWords(plan)).toMatch(
      /^Routing by experts pays here: with \w+, 4D serves [\d,]+ requests per second/,
    )
  })

  it('gives rates that hold, with one that fails at most 1 % above, and the limit that breaks there', () => {
    for (const { highest, probes } of plan.results) {
      expect(highest.outcome).toBe('edge')
      expect(highest.probe.tpotP99Ms.mean).toBeLessThanOrEqual(10)
      expect(highest.limits).toEqual(['tpot'])
      const above = probes.filter(probe => probe.decoders === 4 && !probe.holds).map(probe => probe.rate)
      expect(Math.min(...above) / highest.value!).toBeLessThanOrEqual(1.0101)
    }
  })

  it('gives the fewest decode workers whose lower neighbour failed, in GPUs and money', () => {
    for (const { variant, fewest, probes } of plan.results) {
      const tried = (workers: number) =>
        probes.find(probe => probe.rate === 300 && probe.decoders === workers)
      expect(tried(fewest!.value!)?.holds, variant).toBe(true)
      expect(tried(fewest!.value! - 1)?.holds, variant).toBe(false)
      expect(fewest!.costPerHour).toBe(2 * fewest!.gpus!)
    }
    const saved = of('jsq').fewest!.value! - of('union').fewest!.value!
    expect(of('union').fewest).toMatchObject({ gpusSaved: saved, savedPerYear: saved * 2 * 8760 })
    expect(of('jsq').fewest!.gpusSaved).toBeNull()
  })

  it('compares all policies at one rate with the same seeds', () => {
    expect(plan.sameRate.rate).toBe(of('jsq').highest.value)
    expect(plan.sameRate.points.map(({ variant }) => variant)).toEqual(['jsq', 'eldr', 'union'])
    expect(of('jsq').probes.filter(probe => probe.rate === plan.sameRate.rate)).toHaveLength(1)
  })

  it('fits the terminal, without invalid numbers', () => {
    const text = planTables(plan, 1, plain)
    expect(text).not.toMatch(/NaN|undefined|null|Infinity/)
    for (const line of text.split('\n')) expect(line.length).toBeLessThanOrEqual(100)
    expect(text).toMatch(/times the duration of a\s+request/)
    expect(text).toContain('set by --gpu-hour')
  })
})

describe('a plan says why routing by experts will not help', () => {
  it('if experts are drawn at random: nothing distinguishes requests', async () => {
    const plan = await planOf({ trace: 'random' })
    expect(plan.verdict.answer).toBe('does_not')
    expect(plan.verdict.reasons).toEqual(['no_structure', 'weak_signature'])
    expect(Math.abs(found(plan, 'weak_signature'))).toBeLessThan(0.1)
    expect(verdictInWords(plan)).toMatch(
      /does not pay here: .* Requests are too alike.* activates .* fewer experts than jsq.* ρ is −?0\.0/,
    )
  })

  it('if batches are so large that every expert fires', async () => {
    const plan = await planOf({ trace: 'few', slo: { tpotMs: 5.7 } })
    expect(plan.results[0]!.highest.probe.batch).toBeGreaterThan(40)
    expect(plan.verdict.answer).toBe('does_not')
    expect(plan.verdict.reasons).toEqual(['every_expert_fires'])
    expect(found(plan, 'every_expert_fires')).toBeGreaterThan(0.98)
    expect(verdictInWords(plan)).toMatch(/Batches of \d+ activate 1[56]\.\d of 16 experts/)
  })

  it('if a step spends its time on something else', async () => {
    const plan = await planOf({ trace: 'structured', profile: 'base', slo: { tpotMs: 14 } })
    expect(plan.verdict.reasons).toEqual(['other_costs'])
    expect(found(plan, 'other_costs')).toBeLessThan(0.1)
    expect(verdictInWords(plan)).toMatch(/active experts account for \d+\u00a0% of a step’s time/i)
  })

  it('if prefill is the bottleneck, and tries no decode workers that would not help', async () => {
    const plan = await planOf({
      trace: 'structured',
      profile: 'prefill',
      topology: '1P4D',
      slo: { tpotMs: 10, ttftMs: 60 },
      rate: 400,
    })
    expect(plan.verdict).toMatchObject({ answer: 'does_not', reasons: ['prefill_bound'], gain: 0 })
    expect(plan.results.map(({ highest }) => highest.limits)).toEqual([['ttft'], ['ttft'], ['ttft']])
    expect(plan.results.map(({ fewest }) => fewest!.value)).toEqual([null, null, null])
    expect(verdictInWords(plan)).toMatch(/Prefill is the bottleneck above \d+ requests per second \(TTFT\)/)
  })

  it('if no rate keeps the SLO: a single request is slower', async () => {
    const plan = await planOf({ trace: 'structured', slo: { tpotMs: 2 }, rate: 10 })
    expect(plan.verdict.answer).toBe('out_of_reach')
    expect(plan.bounds.aloneMs).toBeCloseTo((1000 + 10 + 24 * (10 + 40)) / 1000, 6)
    expect(
      plan.results.every(({ highest, fewest }) => highest.value === null && fewest!.value === null),
    ).toBe(true)
    expect(verdictInWords(plan)).toMatch(
      /No policy keeps this SLO at any rate: .* a single request takes 2\.21 ms/,
    )
  })

  it('if the SLO leaves room for hardly two requests at once', async () => {
    const plan = await planOf({ trace: 'structured', slo: { tpotMs: 2.4 } })
    expect(plan.verdict.answer).toBe('does_not')
    expect(plan.verdict.reasons).toEqual(['small_batches'])
  })
})

describe('a plan for a cluster that no SLO limits', () => {
  it('ends at the maximum of its workers', async () => {
    const plan = await planOf({
      trace: 'structured',
      slo: { tpotMs: 1000 },
      policies: ['round_robin', 'union'],
    })
    for (const { highest } of plan.results) {
      expect(highest.limits).toEqual(['decode_rate'])
      expect(highest.value).toBeLessThanOrEqual(plan.bounds.highest * 1.001)
      expect(highest.probe.batch).toBeGreaterThan(200)
    }
  })
})
