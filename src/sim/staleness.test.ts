import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { fitFile, shipped } from '../../test/data.ts'
import { temporaryFolder } from '../../test/trace-support.ts'
import { writeArtifact } from '../fit/artifact-write.ts'
import { exactPoint, runStaleness, stalenessCells } from './staleness.ts'
import { prepare, type StudyData } from './study.ts'
import { openStudy } from './study-pool.ts'
import { over } from './sweep.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())
const artifact = join(folder.path, 'task')
const study: StudyData = {
  trace: shipped('lab16-task.evaluation'),
  artifact,
  profile: 'h200-first',
  topology: '8D',
  requests: 2000,
  arrivals: 'poisson',
  rows: 'replacement',
}

beforeAll(async () => writeArtifact(artifact, (await fitFile(shipped('lab16-task.calibration'))).artifact))

describe('the cells of a staleness study', () => {
  it('are one gateway, then every number and age; with an estimate only if requests are unseen and loads decide', () => {
    const text = stalenessCells({
      policies: ['jsq', 'power_of_two'],
      gateways: [2, 8],
      viewAgesMs: [0, 20, null],
    }).map(cell => {
      const { count, viewAgeMs, anticipating } =
        'gateways' in cell ? cell.gateways : { count: 1, viewAgeMs: 'exact', anticipating: false }
      return `${cell.variant} ${count} ${viewAgeMs}${anticipating === true ? ' anticipating' : ''}`
    })
    expect(text).toEqual([
      'jsq 1 exact',
      'jsq 2 0',
      'jsq 2 20',
      'jsq 2 20 anticipating',
      'jsq 2 null',
      'jsq 8 0',
      'jsq 8 20',
      'jsq 8 20 anticipating',
      'jsq 8 null',
      'power_of_two 1 exact',
      'power_of_two 2 0',
      'power_of_two 2 20',
      'power_of_two 2 null',
      'power_of_two 8 0',
      'power_of_two 8 20',
      'power_of_two 8 null',
    ])
  })
})

describe('gateways with old views, on the shipped trace', () => {
  it('lose the gain of union, and keep nearly all of it if they estimate unseen requests; eldr needs that less', async () => {
    const pool = openStudy(study)
    const asked = {
      study,
      policies: ['eldr', 'union'],
      rate: 400,
      gateways: [8],
      viewAgesMs: [100],
      seeds: 1,
    }
    const points = await runStaleness(asked, pool).finally(pool.close)
    const loss = (variant: string, anticipating: boolean) => {
      const point = points.find(
        each => each.variant === variant && each.gateways?.anticipating === anticipating,
      )!
      return (
        over(point, run => run.tpotMs.p50).mean /
          over(exactPoint(points, point), run => run.tpotMs.p50).mean -
        1
      )
    }
    expect(loss('union', false)).toBeGreaterThan(0.1)
    expect(loss('union', true)).toBeLessThan(0.05)
    expect(Math.abs(loss('eldr', false))).toBeLessThan(0.05)
  })
})

describe('gateways that share nothing, on the shipped trace', () => {
  it('gain most by eldr with an artifact, and by union without one: the defaults of the Helm chart', async () => {
    const run = await prepare(study)
    for (const count of [2, 4]) {
      const p50 = async (variant: string, path?: string) => {
        const gateways = { count, viewAgeMs: null }
        return (await run({ variant, rate: 400, seed: 0, setting: { gateways, artifact: path } })).tpotMs.p50
      }
      const [jsq, withoutArtifact, union, eldr] = [
        await p50('jsq'),
        await p50('union'),
        await p50('union', artifact),
        await p50('eldr', artifact),
      ]
      expect(withoutArtifact).toBeLessThan(jsq)
      expect(eldr).toBeLessThan(0.97 * Math.min(union, withoutArtifact))
    }
  })
})

describe('decode workers in cells, on the shipped trace', () => {
  it('keep most of the gain if a cell is chosen by signature, and lose it cell by cell if at random', async () => {
    const run = await prepare(study)
    const p50 = async (cells?: StudyData['cells']) =>
      (await run({ variant: 'union', rate: 400, seed: 0, setting: cells === undefined ? {} : { cells } }))
        .tpotMs.p50
    const whole = await p50()
    const [random2, random8, alike2] = [
      await p50({ count: 2, by: 'random' }),
      await p50({ count: 8, by: 'random' }),
      await p50({ count: 2, by: 'locality' }),
    ]
    expect(random2 / whole).toBeGreaterThan(1.01)
    expect(random8).toBeGreaterThan(random2)
    expect(alike2 / whole).toBeLessThan(1.03)
    expect(alike2).toBeLessThan(random2)
  })

  it('must be of equal size', async () => {
    const run = await prepare(study)
    await expect(
      run({ variant: 'jsq', rate: 400, seed: 0, setting: { cells: { count: 3, by: 'random' } } }),
    ).rejects.toThrow('cannot split 8 workers into 3 cells of equal size')
  })

  it('by signature may have more workers than there are calibration requests', async () => {
    const few = { topology: '512D', requests: 400, cells: { count: 8, by: 'locality' } } as const
    const run = await prepare({ ...study, ...few })
    const { requests, reasons } = await run({ variant: 'eldr', rate: 2000, seed: 0 })
    expect(requests).toBe(300)
    expect(Object.keys(reasons)).toEqual(['match_hit'])
  })
})
