import { describe, expect, it } from 'vitest'
import type { Limit } from './plan-probe.ts'
import { type CheckKind, type VerdictInput, verdictOf } from './verdict.ts'

interface Case {
  /** Highest rates of jsq and union; null is none. */
  readonly rates?: readonly [number | null, number | null]
  readonly active?: readonly [number, number]
  readonly batch?: number
  readonly tpotMeanMs?: number
  readonly rho?: number
  readonly limits?: readonly Limit[]
  readonly gpusSaved?: number
}

/** 100 layers × 100 experts, 1 µs for each active expert of a layer: 60 of them take 6 ms of a step of 10. */
function inputOf({
  rates = [100, 120],
  active = [60, 50],
  batch = 20,
  tpotMeanMs = 10,
  rho,
  limits = ['tpot'],
  gpusSaved,
}: Case): VerdictInput {
  const [base, best] = rates
  const gain = base === null || best === null ? null : best / base - 1
  const probe = (activeExperts: number) => ({
    activeExperts,
    fullestRankExperts: activeExperts,
    batch,
    tpotMeanMs,
  })
  return {
    balancer: 'jsq',
    results: [
      { variant: 'jsq', isBalancer: true, highest: { value: base, limits, gain: null } },
      {
        variant: 'union',
        isBalancer: false,
        highest: { value: best, limits, gain },
        fewest: gpusSaved === undefined ? undefined : { value: 10, gpusSaved },
      },
    ],
    sameRate: {
      points: [
        { variant: 'jsq', probe: probe(active[0]) },
        { variant: 'union', probe: probe(active[1]) },
      ],
    },
    traffic: { experts: 100 },
    profile: {
      shape: { layers: 100, experts: 100, topK: 8 },
      decode: {
        kind: 'linear',
        baseUs: 0,
        perRequestUs: 0,
        perLayerUs: 0,
        perActiveExpertUs: 1,
        perContextKTokenUs: 0,
      },
    },
    rho,
  }
}
const verdict = (given: Case) => verdictOf(inputOf(given))
const valueOf = (given: Case, kind: CheckKind) =>
  verdict(given).checks.find(check => check.kind === kind)?.value

describe('the verdict', () => {
  it('is that it pays if the rate rises by 2 % or GPUs fall because experts are saved', () => {
    expect(verdict({})).toMatchObject({ answer: 'pays', policy: 'union', reasons: [] })
    expect(verdict({ rates: [100, 102] }).answer).toBe('pays')
    expect(verdict({ rates: [100, 101] }).answer).toBe('does_not')
    expect(verdict({ rates: [100, 100], gpusSaved: 1 }).answer).toBe('pays')
    expect(verdict({ rates: [100, 100], gpusSaved: 0 }).answer).toBe('does_not')
    // better balance, or chance
    expect(verdict({ rates: [100, 110], active: [60, 59.5] }).answer).toBe('does_not')
  })

  it('handles rates that no policy holds, or only one', () => {
    expect(verdict({ rates: [null, null] })).toMatchObject({ answer: 'out_of_reach', gain: null })
    expect(verdict({ rates: [null, 50] }).answer).toBe('pays')
    expect(verdict({ rates: [50, null] }).answer).toBe('does_not')
  })

  it('takes the policy with the highest rate and, of equal ones, the one with the fewest workers', () => {
    const input = inputOf({ gpusSaved: 2 })
    const [jsq, union] = input.results
    const other = (value: number, workers: number) => ({
      ...union!,
      variant: 'eldr',
      highest: { ...union!.highest, value },
      fewest: { value: workers, gpusSaved: 1 },
    })
    const policyOf = (value: number, workers: number) =>
      verdictOf({ ...input, results: [jsq!, other(value, workers), union!] }).policy
    expect([policyOf(130, 12), policyOf(110, 9), policyOf(120, 11), policyOf(120, 9)]).toEqual([
      'eldr',
      'union',
      'union',
      'eldr',
    ])
  })

  it.each<[CheckKind, Case, number]>([
    ['small_batches', { batch: 1.5 }, 1.5],
    ['every_expert_fires', { active: [95, 94] }, 0.95],
    ['no_structure', { active: [60, 59.4] }, 0.01],
    ['weak_signature', { rho: 0.05 }, 0.05],
    ['other_costs', { tpotMeanMs: 60 }, 0.1],
    ['prefill_bound', { limits: ['ttft'] }, 120],
    ['prefill_bound', { limits: ['prefill_rate'] }, 120],
  ])('finds %s, with the number it is based on', (kind, given, value) => {
    expect(verdict(given).reasons).toEqual([kind])
    expect(valueOf(given, kind)).toBeCloseTo(value, 9)
  })

  it('does not blame the trace if the batches explain that nothing is saved', () => {
    expect(verdict({ active: [99, 99] }).reasons).toEqual(['every_expert_fires'])
    expect(verdict({ active: [8, 8], batch: 1, tpotMeanMs: 2 }).reasons).toEqual(['small_batches'])
    expect(verdict({ active: [95, 80] }).reasons).toEqual([]) // nearly all fire, but some can still be saved
  })

  it('ignores a ρ that was not measured', () => {
    expect(valueOf({}, 'weak_signature')).toBeUndefined()
    expect(verdict({ rho: 0.7 }).reasons).toEqual([])
  })
})
