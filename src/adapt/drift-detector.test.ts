import { beforeAll, describe, expect, it } from 'vitest'
import { fitFile, shipped } from '../../test/data.ts'
import type { Artifact } from '../fit/artifact.ts'
import { createRandom } from '../math/random.ts'
import { mixWeights } from '../sim/mix-draw.ts'
import { DriftDetector, rankOf } from './drift-detector.ts'
import { liveRows, type LiveRow, ranksOf } from './traffic.ts'

const RANKS = [
  { q: 0, value: 0 },
  { q: 1, value: 1 },
]
const DAY_SECONDS = 86_400

let [task, lang, ranks, foreign]: [LiveRow[], LiveRow[], Float64Array, Float64Array] = [
  [],
  [],
  new Float64Array(),
  new Float64Array(),
]

beforeAll(async () => {
  const artifact: Artifact = (await fitFile(shipped('lab16-task.calibration'), { workers: 8 })).artifact
  task = await liveRows(shipped('lab16-task.evaluation'))
  lang = await liveRows(shipped('lab16-lang.evaluation'))
  ranks = ranksOf(task, artifact)
  foreign = ranksOf(lang, artifact)
})

describe('the rank of a request among the calibration requests', () => {
  it('is linear between the known quantiles, and 0 or 1 outside', () => {
    const quantiles = [
      { q: 0, value: 0.5 },
      { q: 0.5, value: 0.7 },
      { q: 1, value: 0.8 },
    ]
    expect([0.4, 0.5, 0.6, 0.75, 0.9].map(value => rankOf(value, quantiles))).toEqual([
      0,
      0,
      expect.closeTo(0.25),
      expect.closeTo(0.75),
      1,
    ])
    expect(rankOf(NaN, quantiles)).toBe(0)
    expect(rankOf(0.5, [])).toBe(0)
  })
})

describe('the drift detector', () => {
  it('raises no alarm in a week of requests of the calibrated mix, with a mix that turns each day', () => {
    const random = createRandom(7)
    const domains = [...new Set(task.map(({ domain }) => domain))]
    const rowsOf = domains.map(name => [...task.keys()].filter(row => task[row]!.domain === name))
    const shares = rowsOf.map(({ length }) => length / task.length)
    const perSecond = 5
    for (const weightsAt of [
      () => shares,
      mixWeights({ kind: 'rotation', daySeconds: DAY_SECONDS }, domains, shares),
    ]) {
      const detector = new DriftDetector(RANKS)
      let alarms = 0
      for (let at = 0; at < 7 * DAY_SECONDS * perSecond; at++) {
        const weights = weightsAt(at / perSecond)
        let left = random.uniform() * weights.reduce((a, b) => a + b, 0)
        const domain = Math.max(
          0,
          weights.findIndex(weight => (left -= weight) < 0),
        )
        const rows = rowsOf[domain]!
        if (detector.add(ranks[rows[random.below(rows.length)]!]!, at) === 'drift') alarms++
      }
      expect(alarms).toBe(0)
    }
  })

  it('notices other traffic after a few hundred requests, and knows when it began', () => {
    for (let seed = 0; seed < 20; seed++) {
      const random = createRandom(seed)
      const detector = new DriftDetector(RANKS)
      for (let at = 0; at < 2_000; at++) detector.add(ranks[random.below(ranks.length)]!, at)
      expect(detector.isDrifting).toBe(false)
      let at = 2_000
      while (detector.add(foreign[random.below(foreign.length)]!, at) !== 'drift') at++
      expect(at).toBeLessThan(2_300)
      expect(Math.abs(detector.sinceMs! - 2_000)).toBeLessThan(60)
      expect(detector.add(0.9, at + 1)).toBeUndefined() // once
      expect(detector.isDrifting).toBe(true)
    }
  })

  it('clears the drift soon after requests match again, and not while they do not', () => {
    for (let seed = 0; seed < 5; seed++) {
      const random = createRandom(seed)
      const detector = new DriftDetector(RANKS)
      const add = (from: Float64Array, at: number) => detector.add(from[random.below(from.length)]!, at)
      let at = 0
      while (add(foreign, at) !== 'drift') at++
      const changes = (from: Float64Array) =>
        Array.from({ length: 5_000 }, () => add(from, ++at)).filter(change => change !== undefined)
      expect(changes(foreign)).toEqual([])
      const matchedFrom = at
      while (add(ranks, at) !== 'recovered') at++
      expect(at - matchedFrom).toBeLessThan(200)
      expect(detector).toMatchObject({ isDrifting: false, sinceMs: undefined })
      expect(changes(ranks)).toEqual([])
      // Another change is noticed as the first was.
      const changedAt = at
      while (add(foreign, ++at) !== 'drift');
      expect(at - changedAt).toBeLessThan(300)
      expect(Math.abs(detector.sinceMs! - changedAt)).toBeLessThan(60)
    }
  })

  it('shows the mean rank of recent requests', () => {
    const detector = new DriftDetector(RANKS)
    expect(detector.meanRank).toBeUndefined()
    for (let at = 0; at < 3_000; at++) detector.add(at % 2 === 0 ? 0.4 : 0.6, at)
    expect(detector.meanRank).toBeCloseTo(0.5, 1)
  })
})
