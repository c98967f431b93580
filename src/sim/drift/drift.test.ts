/** Each scenario does what it says, on the shipped traces. */
import { isDeepStrictEqual } from 'node:util'
import { afterAll, describe, expect, it } from 'vitest'
import { shipped } from '../../../test/data.ts'
import { temporaryFolder } from '../../../test/trace-support.ts'
import { loadProfile } from '../../cost/profile-file.ts'
import { stepUs } from '../../cost/profile.ts'
import type { Artifact } from '../../fit/artifact.ts'
import { readArtifact } from '../../fit/artifact-read.ts'
import { createRandom } from '../../math/random.ts'
import { dimensionsOf } from '../../signature/signature.ts'
import { RequestPool } from '../requests.ts'
import { prepare, type StudyData, type StudyJob } from '../study.ts'
import { createStudyLibrary } from '../study-library.ts'
import { createWorkload } from '../workload.ts'
import { largeDomains, recipeOf, type DriftOptions, type Traffic } from './drift-runs.ts'
import { driftJobs } from './run-drift.ts'
import { SCENARIOS } from './scenario.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())

const traffic: Traffic = {
  name: 'task',
  evaluation: shipped('lab16-task.evaluation'),
  calibration: shipped('lab16-task.calibration'),
  foreign: shipped('lab16-lang.calibration'),
  domains: ['code', 'legal', 'math', 'medical'],
}
const base: StudyData = {
  trace: traffic.evaluation,
  profile: 'h200-qwen3-30b-a3b',
  topology: '16D',
  requests: 400,
  arrivals: 'poisson',
  rows: 'passes',
}
const scenario = (name: string) => SCENARIOS.find(one => one.name === name)!

/** Jobs of one scenario, one policy and one rate, by seed. */
function jobsOf(name: string, change: Partial<DriftOptions> = {}): Promise<StudyJob[]> {
  return driftJobs(
    {
      scenarios: [scenario(name)],
      traffics: [traffic],
      policies: ['union'],
      rates: [100],
      seeds: [0],
      ...base,
      ...change,
    },
    folder.path,
  )
}
const artifactOf = ({ setting }: StudyJob) => readArtifact(setting!.artifact!)
const library = createStudyLibrary()

/** How well centroids tell requests apart: mean over requests of the range of their cosines. */
async function rangeOfCosines(artifact: string): Promise<number> {
  const { featuresOf, replay, artifact: fitted } = await library.evaluation(traffic.evaluation, artifact, 16)
  const { centroids, model } = fitted!.primary
  const width = dimensionsOf(model)
  let sum = 0
  for (const request of replay.requestOf) {
    const { signature } = featuresOf(request)
    const cosines = Array.from({ length: 16 }, (_, k) =>
      signature!.reduce((dot, x, d) => dot + x * centroids[k * width + d]!, 0),
    )
    sum += Math.max(...cosines) - Math.min(...cosines)
  }
  return sum / replay.rows
}

describe('the table of scenarios', () => {
  it('has each name once, in letters that a command line and a link can carry', () => {
    const names = SCENARIOS.map(({ name }) => name)
    expect(new Set(names).size).toBe(names.length)
    for (const name of names) expect(name).toMatch(/^[a-z_]+$/)
  })
})

describe('matched', () => {
  it('is an ordinary study: the artifact of the calibration trace, and nothing else', async () => {
    const [job] = await jobsOf('matched')
    const { artifact: _, trace, requests, ...rest } = job!.setting!
    expect([trace, requests]).toEqual([traffic.evaluation, 400])
    expect(Object.values(rest).filter(value => value !== undefined)).toEqual([])
    expect((await artifactOf(job!)).about).toMatchObject({ workload: 'task', workers: 16 })
  })

  it('shares the jobs of load balancers with all scenarios of artifacts: they are run once', async () => {
    const policies = ['jsq', 'round_robin']
    expect(await jobsOf('matched', { policies })).toEqual(await jobsOf('swapped', { policies }))
    expect(await jobsOf('matched', { policies })).toEqual(await jobsOf('scaled_out', { policies }))
    expect(await jobsOf('matched', { policies })).not.toEqual(await jobsOf('slow', { policies }))
  })
})

describe('swapped', () => {
  it('has the artifact of the other mix under the same traffic', async () => {
    const [job] = await jobsOf('swapped')
    expect(job!.setting!.trace).toBe(traffic.evaluation)
    expect((await artifactOf(job!)).about.workload).toBe('lang')
  })
})

/** Domains of the requests that arrive within a time, in the workload of a job. */
async function domainsBetween(job: StudyJob, fromSeconds: number, toSeconds: number): Promise<string[]> {
  const { replay, domains, domainOf } = await library.evaluation(traffic.evaluation, undefined, 16)
  const { mix: spec } = job.setting!
  const workload = createWorkload(
    {
      arrivals: { kind: 'poisson', perSecond: job.rate },
      mix: spec && { spec, domains, domainOf: domainOf! },
    },
    replay,
    0,
    createRandom(job.seed),
  )
  const pool = new RequestPool()
  const found: string[] = []
  for (let seconds = workload.nextArrivalUs() / 1e6; seconds < toSeconds;) {
    const slot = pool.take()
    workload.assign(pool, slot)
    const row = pool.row[slot]!
    if (seconds >= fromSeconds) found.push(domains[domainOf![row]!]!)
    workload.release(row)
    pool.giveBack(slot)
    seconds = workload.nextArrivalUs() / 1e6
  }
  return found
}

describe('burst', () => {
  it('has one domain for 60 s, another for each seed, and the whole mix before and after', async () => {
    const jobs = await jobsOf('burst', { seeds: [0, 1, 2, 3, 4] })
    for (const job of jobs) {
      const during = await domainsBetween(job, 10, 70)
      expect(during.length).toBeGreaterThan(5500)
      expect([...new Set(during)]).toEqual([traffic.domains[job.seed % 4]])
      expect(new Set(await domainsBetween(job, 0, 10)).size).toBe(4)
      expect(new Set(await domainsBetween(job, 70, 90)).size).toBe(4)
    }
  })

  it('is measured from its start to 15 s after its end, at any rate', async () => {
    for (const rate of [50, 400]) {
      const [job] = await jobsOf('burst', { rates: [rate] })
      expect(job!.setting).toMatchObject({
        requests: 90 * rate,
        measured: { first: 10 * rate, end: 85 * rate },
      })
    }
  })
})

describe('day', () => {
  it('lets each domain have most of the traffic once, and keeps the mix over the day', async () => {
    const [job] = await jobsOf('day')
    expect(job!.setting!.measured).toEqual({ first: 1000, end: 13_000 })
    const leaders = new Set<string>()
    for (let from = 0; from < 120; from += 10) {
      const found = await domainsBetween(job!, from, from + 10)
      const share = (name: string) => found.filter(domain => domain === name).length / found.length
      const leader = traffic.domains.toSorted((a, b) => share(b) - share(a))[0]!
      leaders.add(leader)
      expect(share(leader)).toBeGreaterThan(0.4)
    }
    expect([...leaders].toSorted()).toEqual(traffic.domains)
  })
})

describe('unseen', () => {
  it('leaves one domain out of the fit, another for each seed, and not out of the traffic', async () => {
    const whole = await artifactOf((await jobsOf('matched'))[0]!)
    const shareOf = ({ about, calibration }: Artifact, name: string) =>
      Array.from(calibration.domain!).filter(d => about.domains[d] === name).length
    for (const job of await jobsOf('unseen', { seeds: [0, 3] })) {
      const left = traffic.domains[job.seed]!
      const artifact = await artifactOf(job)
      expect(artifact.about.domains).not.toContain(left)
      expect(shareOf(whole, left)).toBeGreaterThan(50)
      expect(artifact.calibration.requests).toBe(whole.calibration.requests - shareOf(whole, left))
      for (const name of artifact.about.domains) expect(shareOf(artifact, name)).toBe(shareOf(whole, name))
      expect(new Set(await domainsBetween(job, 0, 5))).toContain(left)
    }
  })
})

describe('scaled_out and scaled_in', () => {
  it('keep 12 or 24 clusters for 16 workers', async () => {
    for (const [name, count] of [
      ['scaled_out', 12],
      ['scaled_in', 24],
    ] as const) {
      const { clusters, trace, artifact } = (await jobsOf(name))[0]!.setting!
      expect(clusters).toBe(count)
      const { primary } = (await library.evaluation(trace!, artifact, clusters!)).artifact!
      expect(primary.centroids.length).toBe(count * dimensionsOf(primary.model))
    }
  })

  it('change what a policy with clusters does, and nothing for one without', async () => {
    const run = await prepare(base)
    const results = async (name: string, policy: string) =>
      run((await jobsOf(name, { policies: [policy] }))[0]!)
    const matched = await results('matched', 'eldr')
    for (const name of ['scaled_out', 'scaled_in']) {
      expect((await results(name, 'eldr')).tpotMs).not.toEqual(matched.tpotMs)
      expect(await results(name, 'jsq')).toEqual(await results('matched', 'jsq'))
    }
  })
})

describe('shuffled, noise, centroids and random', () => {
  const kinds = ['shuffled', 'noise', 'centroids', 'random'] as const
  const of = (artifact: (typeof kinds)[number]) => ({ name: artifact, about: '', artifact })
  const made = async (artifact: (typeof kinds)[number]) =>
    (await jobsOf('matched', { scenarios: [of(artifact)] }))[0]!

  it('leave centroids that tell requests hardly apart', async () => {
    const own = await rangeOfCosines((await jobsOf('matched'))[0]!.setting!.artifact!)
    for (const kind of kinds)
      expect(await rangeOfCosines((await made(kind)).setting!.artifact!)).toBeLessThan(0.3 * own)
  })

  it('take another draw for another seed', () => {
    for (const kind of kinds) {
      const recipes = [0, 1, 2].map(seed => JSON.stringify(recipeOf(of(kind), traffic, seed)))
      expect(new Set(recipes).size).toBe(3)
    }
  })

  it('have unit centroids, and calibration requests as fitted unless all is random', async () => {
    const { primary, calibration } = await artifactOf((await jobsOf('matched'))[0]!)
    const width = dimensionsOf(primary.model)
    for (const kind of ['centroids', 'random'] as const) {
      const drawn = await artifactOf(await made(kind))
      expect(drawn.primary.centroids.length).toBe(primary.centroids.length)
      expect(Math.hypot(...drawn.primary.centroids.subarray(0, width))).toBeCloseTo(1, 5)
      const isAsFitted = kind === 'centroids'
      expect(isDeepStrictEqual(drawn.primary.signatures, primary.signatures)).toBe(isAsFitted)
      expect(isDeepStrictEqual(drawn.calibration.patterns, calibration.patterns)).toBe(isAsFitted)
    }
  })
})

describe('slow', () => {
  it('has one decode worker whose steps take 1.5 times as long as the profile says', async () => {
    const profile = await loadProfile(base.profile)
    const ratios = new Map<number, number[]>()
    const run = await prepare(base, (worker, decoder) => {
      let context = 0
      for (let i = 0; i < worker.batch; i++) context += worker.member(i).contextTokens
      const usual = stepUs(profile, worker.batch, worker.fullest, context)
      ratios.set(decoder, [...(ratios.get(decoder) ?? []), worker.stepUs / usual])
    })
    const jobs = await jobsOf('slow', { policies: ['jsq'], seeds: [0, 17] })
    expect(jobs.map(({ setting }) => setting!.slowDecoder!.decoder)).toEqual([0, 1])
    await run(jobs[1]!)
    expect(ratios.size).toBe(16)
    for (const [decoder, found] of ratios)
      for (const ratio of found) expect(ratio).toBeCloseTo(decoder === 1 ? 1.5 : 1, 9)
  })
})

describe('large domains', () => {
  it('have a twentieth of the requests of every trace', () => {
    const domains = ['a', 'b', 'c']
    const rows = (...counts: number[]) => counts.flatMap((count, d) => Array<number>(count).fill(d))
    const one = { domains, domainOf: rows(50, 45, 5) }
    const other = { domains: ['c', 'a', 'b'], domainOf: rows(50, 49, 1) }
    expect(largeDomains([one, one])).toEqual(['a', 'b', 'c'])
    expect(largeDomains([one, other])).toEqual(['a', 'c'])
    expect(largeDomains([{ domains: [], domainOf: [] }])).toEqual([])
  })
})
