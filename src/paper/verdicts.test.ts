import { describe, expect, it } from 'vitest'
import type { Exhibit, ExhibitNumber } from '../report/exhibit.ts'
import { shortSource } from './short-source.ts'
import { verdictOf } from './verdicts.ts'

const number = (value: number): ExhibitNumber => ({ value, digits: 1 })
const exhibit = (id: string, change: Partial<Exhibit>): Exhibit => ({
  id,
  title: '',
  finding: '',
  source: '',
  tables: [],
  charts: [],
  ...change,
})

/** A gain table with two loads. */
function gains(id: string, band: readonly number[], domain: readonly number[] = [0, 0, 0, 0]): Exhibit {
  const columns = ['policy', 'p50 at 10', 'p50 at 20', 'p99 at 10', 'p99 at 20']
  const rows = [
    ['domain', ...domain.map(number)],
    ['band', ...band.map(number)],
  ]
  return exhibit(id, { tables: [{ columns, rows }] })
}

describe('verdicts', () => {
  it('compare the mean over the loads with the paper’s range', () => {
    expect(verdictOf(gains('fig-12', [-8, -7, -2, 1]))).toEqual({
      word: 'Reproduced',
      why: 'band’s changes of p50 and p99 TPOT are both within the paper’s range.',
      numbers: expect.stringContaining('−7.5') as string,
    })
    expect(verdictOf(gains('fig-12', [-12, -11, 4, 5]))).toMatchObject({
      word: 'Partly reproduced',
      why: 'band’s change of p50 TPOT is better than the paper’s range, its change of p99 is worse than the paper’s.',
    })
    expect(verdictOf(gains('fig-12', [1, 2, 0, 0])).word).toBe('Not reproduced')
  })

  it('count the loads at which routing by domain label beats band', () => {
    const { why } = verdictOf(gains('fig-11', [-9, -12, 7, 1], [-11, -10, 18, 11]))
    expect(why).toContain('lower p50 than band at 1 of the 2 loads and a higher p99 at all 2 loads')
  })

  it('say which figures hold by construction', () => {
    for (const id of ['fig-5', 'fig-17']) expect(verdictOf(exhibit(id, {})).word).toBe('By construction')
  })

  it('name the width of the band from which p99 falls on both mixes', () => {
    const columns = ['band', 'p50, task mix', 'p99, task mix', 'p50, language mix', 'p99, language mix']
    const row = (band: string, p99: readonly number[]) => [
      band,
      number(-9),
      number(p99[0]!),
      number(-8),
      number(p99[1]!),
    ]
    const rows = [row('τ = 0.1', [1, -1]), row('τ = 0.2', [-1, -2])]
    expect(verdictOf(exhibit('fig-16', { tables: [{ columns, rows }] })).why).toContain('from τ = 0.2 on')
  })

  it('exist for every exhibit', () => {
    expect(() => verdictOf(exhibit('fig-99', {}))).toThrow('no verdict for exhibit fig-99')
  })
})

describe('shortSource', () => {
  const traces = 'lab16-task.evaluation.safetensors (sha256 13d550d9a707…)'
  const runs = '4,000 requests per run, 3 seeds; ± is the 95 % interval over seeds.'

  it('leaves out hashes and the standard conditions', () => {
    expect(
      shortSource(
        `Simulated: 8P16D, profile p, ${traces}; artifact count-idf, 16 clusters, fitted on c; Poisson arrivals, no row twice, ${runs} Batch 20.`,
      ),
    ).toBe('Simulated: 8P16D, profile p, lab16 task. Batch 20.')
    expect(shortSource(`Drawn from ${traces}: 400 batches.`)).toBe(
      'Drawn from lab16-task.evaluation.safetensors: 400 batches.',
    )
  })

  it('keeps conditions that are not standard', () => {
    expect(
      shortSource(
        `Simulated: 8P16D, profile p, ${traces}; artifact count-idf, 8 clusters, fitted on c; gamma arrivals, rows with replacement, ${runs}`,
      ),
    ).toBe('Simulated: 8P16D, profile p, lab16 task, 8 clusters; gamma arrivals, rows with replacement.')
  })
})
