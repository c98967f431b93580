import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'
import { compileModules, temporaryFolder } from '../../test/trace-support.ts'
import { meanInterval, studentT } from './confidence.ts'
import { openPool } from './parallel.ts'
import type { SimulationResult } from './result.ts'
import { changeAgainst, grid, over, sweep, type SweepJob } from './sweep.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())

/** A module for threads: its results contain its inputs, and one kind of job fails. */
const module = join(folder.path, 'synthetic.mjs')
writeFileSync(
  module,
  `export const prepare = async ({ scale }) => ({ variant, rate, seed }) => {
    if (variant === 'broken') throw new Error('no such variant')
    return { policy: variant, seed, tpotMs: { p50: scale * rate * (variant === 'half' ? 0.5 : 1) + seed } }
  }`,
)
const plan = { cells: grid(['whole', 'half'], [10, 20]), seeds: [1, 2, 3] }
const data = { scale: 2 }
const onOneThread = () =>
  openPool<unknown, SweepJob, SimulationResult>({ module: pathToFileURL(module), data, threads: 1 })

describe('a sweep', () => {
  it('runs every variant at every rate with every seed, and reports progress', async () => {
    const progress: string[] = []
    const points = await sweep({
      ...plan,
      pool: onOneThread(),
      onProgress: (done, of) => progress.push(`${done}/${of}`),
    })
    expect(points.map(({ variant, rate, runs }) => [variant, rate, runs.map(run => run.tpotMs.p50)])).toEqual(
      [
        ['whole', 10, [21, 22, 23]],
        ['whole', 20, [41, 42, 43]],
        ['half', 10, [11, 12, 13]],
        ['half', 20, [21, 22, 23]],
      ],
    )
    expect(progress).toEqual(Array.from({ length: 12 }, (_, i) => `${i + 1}/12`))
  })

  it('combines seeds into a mean with an interval, and compares points seed by seed', async () => {
    const [whole, , half] = await sweep({ ...plan, pool: onOneThread() })
    const p50 = over(whole!, run => run.tpotMs.p50)
    expect(p50).toMatchObject({ mean: 22, count: 3 })
    expect(p50.half).toBeCloseTo(4.303 / Math.sqrt(3), 9)
    expect(changeAgainst(whole!, half!, run => run.tpotMs.p50).mean).toBeCloseTo(
      (11 / 21 + 12 / 22 + 13 / 23) / 3 - 1,
      12,
    )
  })

  it('gives the same on threads, in the order of the jobs, and passes their failures on', () => {
    compileModules(folder.path, ['sim/sweep.ts', 'sim/parallel-thread.ts'])
    const script = join(folder.path, 'script.mjs')
    writeFileSync(
      script,
      `import { openPool } from './sim/parallel.js'
       import { sweep } from './sim/sweep.js'
       const plan = ${JSON.stringify(plan)}
       const pool = threads => openPool({ module: new URL('./synthetic.mjs', import.meta.url), data: ${JSON.stringify(data)}, threads })
       const here = await sweep({ ...plan, pool: pool(1) })
       const progress = []
       const three = pool(3)
       const threads = await sweep({ ...plan, pool: three, onProgress: done => progress.push(done) })
       const again = await sweep({ ...plan, pool: three })
       const broken = sweep({ ...plan, cells: [{ variant: 'broken', rate: 1 }, ...plan.cells], pool: three })
       const failure = await broken.catch(error => error.message.split('\\n')[0])
       await three.close()
       const same = [threads, again].every(points => JSON.stringify(here) === JSON.stringify(points))
       console.log(JSON.stringify({ same, progress: progress.length, failure }))`,
    )
    const printed = execFileSync(process.execPath, [script], { encoding: 'utf8' })
    expect(JSON.parse(printed)).toEqual({ same: true, progress: 12, failure: 'Error: no such variant' })
  })
})

describe('a confidence interval', () => {
  it('is Student’s, and undefined for a single run', () => {
    expect(meanInterval([5])).toEqual({ mean: 5, half: NaN, count: 1 })
    expect(meanInterval([4, 4, 4]).half).toBe(0)
    expect([studentT(1), studentT(30)]).toEqual([12.706, 2.042])
    expect(studentT(31)).toBeCloseTo(2.0395, 2)
    expect(studentT(1e9)).toBeCloseTo(1.96, 4)
  })
})
