import { describe, expect, it } from 'vitest'
import { CONDITIONS, envelope, servedResult, stepsOf } from '../../test/served-support.ts'
import { completeRuns, parseServedResult, type ResultOf } from './result-file.ts'

const without = (object: object, key: string) =>
  Object.fromEntries(Object.entries(object).filter(([name]) => name !== key))
const profile = (steps: object) => envelope('profile', 'p', { profile: { steps } })

describe('a result of bench/gpu/serving', () => {
  it('is read with its conditions; other keys are ignored', () => {
    const result = parseServedResult('served-k4-b10.json', { ...servedResult(), settings: { rounds: 3 } })
    expect(result).toMatchObject({ kind: 'served', conditions: { mps: true } })
    expect(result).not.toHaveProperty('settings')
  })

  it('of a preparation is not used, and one of an unknown kind is refused', () => {
    expect(parseServedResult('prepare.json', envelope('prepare', 'prepare'))).toBeUndefined()
    expect(() => parseServedResult('x.json', envelope('capture-costs', 'x'))).toThrow('x.json: kind')
  })

  it.each([
    [{ status: 'dry' }, 'status'],
    [{ status: undefined }, 'status'],
    [{ conditions: undefined }, 'conditions'],
    [{ conditions: without(CONDITIONS, 'gpu') }, 'conditions.gpu'],
    [{ conditions: without(CONDITIONS, 'commit') }, 'conditions.commit'],
    [{ conditions: { ...CONDITIONS, commit: 'main' } }, 'conditions.commit'],
    [{ conditions: { ...CONDITIONS, versions: { torch: '2' } } }, 'conditions.versions.vllm'],
    [{ model: undefined }, 'model'],
    [{ format: 'eldr.gpu-serving.v2' }, 'format'],
  ])('is no evidence with %j', (change, field) => {
    expect(() => parseServedResult('served-k4-b10.json', { ...servedResult(), ...change })).toThrow(
      `served-k4-b10.json: ${field}`,
    )
  })

  it('has the name of its file', () => {
    expect(() => parseServedResult('other.json', servedResult())).toThrow(
      'other.json: its name is served-k4-b10',
    )
  })

  it('has columns of one length', () => {
    const steps = stepsOf(() => 1_000, { count: 30 })
    expect(parseServedResult('p.json', profile(steps))).toBeDefined()
    expect(() => parseServedResult('p.json', profile({ ...steps, batch: [1] }))).toThrow(
      'steps.batch has 1 values, and steps.ms 30',
    )
  })

  it('may have runs that failed, which have no figures', () => {
    const runs = [{ policy: 'jsq', round: 0, failed: 'gateway not ready' }]
    const result = parseServedResult('served-k4-b10.json', servedResult({ runs })) as ResultOf<'served'>
    expect(completeRuns(result)).toEqual([])
  })
})
