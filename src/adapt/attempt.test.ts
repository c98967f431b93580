import { beforeAll, describe, expect, it } from 'vitest'
import { fitFile, shipped } from '../../test/data.ts'
import type { Artifact } from '../fit/artifact.ts'
import { createRandom } from '../math/random.ts'
import { dimensionsOf } from '../signature/signature.ts'
import { attempt, type AttemptInput } from './attempt.ts'
import { LiveSample } from './live-sample.ts'
import { asRequest, liveRows, type LiveRow } from './traffic.ts'

const WORKERS = 4

let task: Artifact
let rows: Readonly<Record<'task' | 'lang', LiveRow[]>>

beforeAll(async () => {
  task = (await fitFile(shipped('lab16-task.calibration'), { workers: WORKERS })).artifact
  rows = {
    task: await liveRows(shipped('lab16-task.evaluation')),
    lang: await liveRows(shipped('lab16-lang.evaluation')),
  }
})

function inputOf(traffic: 'task' | 'lang', reports: boolean): AttemptInput {
  const sample = new LiveSample({ capacity: 1_024, halfLifeMs: 1e6, random: createRandom(3) })
  rows[traffic].forEach(({ counts, pattern }, at) => {
    sample.offer({ id: `${at}`, counts }, at)
    if (reports) sample.report(`${at}`, pattern)
  })
  return {
    sample: sample.snapshot(),
    artifact: task,
    workers: Array.from({ length: WORKERS }, (_, cluster) => ({ cluster, fixed: false })),
    inflight: rows[traffic]
      .slice(0, 40)
      .map((row, at) => ({ worker: at % WORKERS, signature: asRequest('', row, task).signature! })),
    policy: 'eldr',
    tau: 0.1,
    meanInflight: 12 * WORKERS,
    seed: 1,
    parentSha256: 'a'.repeat(64),
    atMs: 1_700_000_000_000,
  }
}

describe('an attempt', () => {
  it('gains on traffic that the artifact was not made for, beyond its noise', () => {
    for (const reports of [true, false]) {
      const { gain, judgedBy, fitted, heldOut, moved, inflight } = attempt(inputOf('lang', reports))
      expect(judgedBy).toBe(reports ? 'reported' : 'predicted')
      expect(gain.mean - gain.half).toBeGreaterThan(0.01)
      expect(fitted + heldOut).toBe(rows.lang.length)
      expect(moved).toBeLessThan(inflight)
    }
  })

  it('does not gain on the traffic that the artifact was made for', () => {
    const { gain } = attempt(inputOf('task', true))
    expect(gain.mean - gain.half).toBeLessThanOrEqual(0)
  })

  it('makes an artifact whose neighbours are the sample, with the patterns that workers reported', () => {
    const { artifact } = attempt(inputOf('lang', true))
    const { about, calibration, primary } = artifact
    expect(about.lineage).toMatchObject({
      parentSha256: 'a'.repeat(64),
      atMs: 1_700_000_000_000,
      sampleRequests: calibration.requests,
      judgedBy: 'reported',
    })
    const reported = new Set(rows.lang.map(({ pattern }) => pattern.join()))
    const cells = about.layers * about.experts
    for (let row = 0; row < calibration.requests; row++)
      expect(reported.has(calibration.patterns!.subarray(row * cells, (row + 1) * cells).join())).toBe(true)
    expect(primary.signatures.length).toBe(calibration.requests * dimensionsOf(primary.model))
    expect(primary.model).toBe(task.primary.model)
    expect(about.sizes.reduce((a, b) => a + b, 0)).toBe(calibration.requests)
  })

  it('takes the shares of the prompt where nothing was reported', () => {
    const { artifact } = attempt(inputOf('lang', false))
    const { experts, topK } = artifact.about
    const layer = artifact.calibration.patterns!.subarray(0, experts)
    expect(layer.reduce((a, b) => a + b, 0) / 255).toBeCloseTo(topK, 0)
  })

  it('gives a joining worker a cluster too, and the same result for the same input', () => {
    const input = inputOf('lang', false)
    const joined = { ...input, workers: [...input.workers, { fixed: false }] }
    const [first, second] = [attempt(joined), attempt(joined)]
    expect(first.artifact.about.workers).toBe(WORKERS + 1)
    expect(second).toEqual(first)
  })
})
