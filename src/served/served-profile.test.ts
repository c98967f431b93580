import { describe, expect, it } from 'vitest'
import { envelope, stepsOf } from '../../test/served-support.ts'
import { loadProfile, parseProfile } from '../cost/profile-file.ts'
import { parseServedResult, type ResultOf } from './result-file.ts'
import { profileText, servedProfile } from './served-profile.ts'

const torch = await loadProfile('h200-qwen3-30b-a3b')

function resultOf(profile: object): ResultOf<'profile'> {
  const steps = stepsOf((batch, experts) => 500 + 5 * batch + 60 * experts)
  const made = envelope('profile', 'profile-wide', { profile: { steps, ...profile } })
  return parseServedResult('profile-wide.json', made) as ResultOf<'profile'>
}

describe('a profile of a served engine', () => {
  const prefill = { ms: [10.5, 11, 12], tokens: [100, 200, 400] }
  const kv = { bytesPerToken: 2_304, capacityTokens: 300_000 }

  it('is a file that can be loaded, with its source and its fit error', () => {
    const { profile } = servedProfile(resultOf({ prefill, kv }))
    expect(parseProfile('p.json', profileText(profile))).toEqual(profile)
    expect(profile.name).toBe('h200-served-wide')
    expect(profile.provenance).toMatchObject({
      date: '2026-01-02',
      source: 'bench/gpu/serving/results/profile-wide.json',
    })
    expect(profile.provenance.notes.join(' ')).toMatch(/3,000 recorded steps: linear.*median </)
    expect(profile.prefill).toEqual({ baseUs: 10_000, perTokenUs: 5 })
    expect(profile.kv).toMatchObject(kv)
  })

  it('takes what was not recorded from another profile, and says so', () => {
    const { profile } = servedProfile(resultOf({}), torch)
    expect(profile.prefill).toEqual(torch.prefill)
    expect(profile.kv).toEqual(torch.kv)
    expect(profile.provenance.notes.filter(note => note.includes('Assumed'))).toHaveLength(3)
    expect(() => servedProfile(resultOf({}))).toThrow('profile-wide: no prefill was recorded')
    expect(() => servedProfile(resultOf({ prefill }))).toThrow('profile-wide: no KV cache was recorded')
  })

  it('fits transfers if they were recorded', () => {
    const transfers = { transferTokens: [100, 1_100], transferMs: [1.1, 2.1] }
    const { latencyUs, gigabytesPerSecond } = servedProfile(
      resultOf({ prefill, kv: { ...kv, ...transfers } }),
    ).profile.kv
    expect(latencyUs).toBeCloseTo(1_000, 6)
    expect(gigabytesPerSecond).toBeCloseTo(2.304, 6)
  })

  it('is fitted to the steps of a full batch: near a prefill they end late', () => {
    const steps = stepsOf((batch, experts) => 500 + 5 * batch + 60 * experts)
    const isNear = steps.ms.map((_, i) => i % 3 === 0)
    const late = {
      ...steps,
      ms: steps.ms.map((ms, i) => (isNear[i] ? ms + 13 : ms)),
      cell: steps.batch.map((batch, i) => (isNear[i] ? batch + 1 : batch)),
    }
    const cells = Array.from({ length: 50 }, (_, concurrency) => ({ concurrency }))
    const { profile, fit } = servedProfile(resultOf({ prefill, kv, steps: late, cells }))
    expect(fit.steps).toBe(2_000)
    expect(profile.decode.noise!.factors.at(-1)).toBeCloseTo(1, 3)
    expect(profile.provenance.notes[0]).toContain('2,000 of 3,000 recorded steps, those of a full batch')
  })

  it('is of one engine alone', () => {
    expect(() => servedProfile(resultOf({ prefill, kv, engines: 4 }))).toThrow('4 engines shared the device')
  })
})
