import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { fitFile, shipped } from '../../test/data.ts'
import { failure, temporaryFolder } from '../../test/trace-support.ts'
import { writeArtifact } from '../fit/artifact-write.ts'
import { ELDR } from '../policy/eldr.ts'
import { UNION } from '../policy/union.ts'
import type { SimulationResult } from './result.ts'
import { prepare, type StudyData } from './study.ts'
import { parseVariant } from './variant.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())
const artifact = join(folder.path, 'task')
const study: StudyData = {
  trace: shipped('lab16-task.evaluation'),
  artifact,
  profile: 'h200-first',
  topology: '16D',
  requests: 3000,
  arrivals: 'poisson',
  rows: 'passes',
}

beforeAll(async () => writeArtifact(artifact, (await fitFile(shipped('lab16-task.calibration'))).artifact))

describe('a study of the shipped task trace', () => {
  const results = new Map<string, SimulationResult>()
  beforeAll(async () => {
    const run = await prepare(study)
    for (const variant of ['jsq', 'eldr', 'eldr@0', 'union'])
      results.set(variant, await run({ variant, rate: 500, seed: 0 }))
  })
  const of = (variant: string) => results.get(variant)!

  it('shows the purpose of the policies: fewer active experts and a lower TPOT than the shortest queue, at equal traffic', () => {
    expect(of('jsq').batch).toBeGreaterThan(8)
    for (const variant of ['eldr', 'union']) {
      expect(of(variant).activeExperts / of('jsq').activeExperts).toBeLessThan(0.95)
      expect(of(variant).tpotMs.p50 / of('jsq').tpotMs.p50).toBeLessThan(0.96)
    }
  })

  it('shows that union improves the tail and eldr does not', () => {
    expect(of('union').tpotMs.p99 / of('jsq').tpotMs.p99).toBeLessThan(0.98)
    expect(of('union').tpotMs.p99).toBeLessThan(of('eldr').tpotMs.p99)
  })

  it('counts the reasons of decisions', () => {
    expect(Object.keys(of('jsq').reasons)).toEqual(['least_loaded'])
    expect(Object.keys(of('eldr').reasons).toSorted()).toEqual(['match_hit', 'match_spill'])
    expect(Object.keys(of('eldr@0').reasons)).toEqual(['match_hit'])
    expect(Object.keys(of('union').reasons)).toEqual(['least_cost'])
  })

  it('gives the same numbers for the same seed', async () => {
    const run = await prepare(study)
    expect(await run({ variant: 'union', rate: 500, seed: 0 })).toEqual(of('union'))
  })
})

describe('a cluster with a slow decode worker and another cost than the built-in one', () => {
  const results = new Map<string, SimulationResult>()
  const setting = {
    profile: 'h200-gpt-oss-120b',
    slowDecoder: { decoder: 3, factor: 1.5 },
    requests: 5_000,
    measured: { first: 2_500, end: 4_700 },
  }
  beforeAll(async () => {
    const run = await prepare({ ...study, ...setting })
    for (const variant of ['union@exact', 'union@learnt', 'union@default'])
      results.set(variant, await run({ variant, rate: 160, seed: 0 }))
  })
  const of = (variant: string) => results.get(variant)!

  it('has nearly the latencies of exact costs if union learns them', () => {
    expect(of('union@learnt').tpotMs.p50 / of('union@exact').tpotMs.p50).toBeLessThan(1.03)
    expect(of('union@learnt').tpotMs.p99 / of('union@exact').tpotMs.p99).toBeLessThan(1.06)
    expect(of('union@default').tpotMs.p99 / of('union@exact').tpotMs.p99).toBeGreaterThan(1.2)
  })

  it('gives the same numbers for the same seed, also if costs are learnt', async () => {
    const run = await prepare({ ...study, ...setting })
    expect(await run({ variant: 'union@learnt', rate: 160, seed: 0 })).toEqual(of('union@learnt'))
  })
})

describe('a study', () => {
  it('parses policies by name, with their own band if one is given', () => {
    expect(parseVariant('union')).toEqual({ policy: UNION })
    expect(parseVariant('eldr@0.25')).toEqual({ policy: ELDR, tau: 0.25 })
    expect(parseVariant('union@true')).toEqual({ policy: UNION, foresight: 'true' })
    expect(parseVariant('union@learnt')).toEqual({ policy: UNION, cost: 'learnt' })
    for (const wrong of ['', 'eldr@learnt', 'union@0.1', 'eldr@2', 'eldr@-1', 'jsq@0.1', 'ELDR', 'eldr@'])
      expect(parseVariant(wrong)).toBeUndefined()
  })

  it('needs an artifact for eldr, none for union, and one of the same model', async () => {
    const { artifact: _, ...bare } = { ...study, requests: 200 }
    const run = await prepare(bare)
    // warm-up and cool-down do not count
    expect((await run({ variant: 'union', rate: 100, seed: 0 })).reasons).toEqual({ least_cost: 150 })
    const error = await failure('', () => run({ variant: 'eldr', rate: 100, seed: 0 }))
    expect(error.message).toContain('an artifact with centroids')
    expect(
      (await failure('task', () => prepare({ ...study, trace: shipped('tiny6-long-task.evaluation') }))).code,
    ).toBe('ELDR_FIT_BAD_OPTION')
  })

  describe('with recorded arrivals', () => {
    const file = join(folder.path, 'calls.jsonl')
    // The first half arrives ten times as fast as the second.
    const times = Array.from({ length: 400 }, (_, i) => (i < 200 ? i * 10 : 2_000 + (i - 200) * 100))
    writeFileSync(
      file,
      times.map(timestamp => JSON.stringify({ timestamp, input_length: 600, output_length: 40 })).join('\n'),
    )
    const recorded = { ...study, topology: '2P4D', workload: { file } }

    it('gives the requests that run the requested rate, whatever follows in the file', async () => {
      const run = await prepare({ ...recorded, requests: 200 })
      const { requestsPerSecond, allRequests } = await run({ variant: 'jsq', rate: 50, seed: 0 })
      expect(allRequests).toBe(200)
      expect(requestsPerSecond).toBeGreaterThan(45)
      expect(requestsPerSecond).toBeLessThan(55)
    })

    it('measures the middle of a file with fewer requests than requested', async () => {
      const run = await prepare({ ...recorded, requests: 100_000 })
      const { requests, allRequests, tpotMs } = await run({ variant: 'jsq', rate: 50, seed: 0 })
      expect([requests, allRequests]).toEqual([300, 400])
      expect(tpotMs.p50).toBeGreaterThan(0)
    })
  })

  it('with an artifact on recent counts reads those of the trace', async () => {
    const path = join(folder.path, 'recent')
    const { artifact: fitted } = await fitFile(shipped('tiny6-long-task.calibration'), { workers: 4 })
    expect(fitted.primary.model.transform).toBe('recent')
    await writeArtifact(path, fitted)
    const run = await prepare({
      ...study,
      trace: shipped('tiny6-long-task.evaluation'),
      artifact: path,
      topology: '2P4D',
      requests: 300,
    })
    const result = await run({ variant: 'eldr', rate: 40, seed: 0 })
    expect(result.reasons['no_signature']).toBeUndefined()
    expect(result.ttftMs!.p50).toBeGreaterThan(0)
  })
})
