import { describe, expect, it } from 'vitest'
import { type BenchLoad, benchArrivals, benchRun } from './bench-load.ts'
import { jsq } from '../policy/jsq.ts'
import { loadProfile } from '../cost/profile-file.ts'
import { replayOf } from './replay.ts'
import { simulate } from './simulate.ts'
import { parseTopology } from './topology.ts'

const replay = replayOf({
  layers: 1,
  experts: 8,
  topK: 2,
  ids: Uint8Array.from({ length: 4 * 3 * 2 }, (_, i) => i % 8),
  maxSteps: 3,
  steps: [3, 0, 3, 2], // request 1 has no decode step, so rows are requests 0, 2 and 3
  promptTokens: [10, 20, 30, 40],
})
const poisson = (perSecond: number) => ({ kind: 'poisson', perSecond }) as const
const load: BenchLoad = {
  prompts: [
    { file: 'a', requests: Int32Array.of(3, 0, 2), outputTokens: Int32Array.of(200, 210, 220) },
    { file: 'b', requests: Int32Array.of(2), outputTokens: Int32Array.of(50) },
  ],
  firstSeed: 11,
  warmUpSeconds: 2,
  seconds: 5,
}

describe('the load of a bench run', () => {
  const { workload, requests, measured } = benchRun(load, poisson(20), replay, 11)
  const arrive = benchArrivals(poisson(20), 11)
  const times = Array.from({ length: requests + 1 }, arrive)

  it('has the requests that eldr bench sends at this rate and seed, and counts the same ones', () => {
    expect(times[requests - 1]).toBeLessThanOrEqual(7e6)
    expect(times[requests]).toBeGreaterThan(7e6)
    expect(measured).toEqual({ first: times.filter(us => us < 2e6).length, end: requests, untilUs: 7e6 })
    expect(Array.from(workload.lengths!.timesUs)).toEqual(times.slice(0, requests))
    expect(workload.arrivals).toEqual(poisson(20))
  })

  it('replays the rows of the prompts, in order, starting over, with their lengths', () => {
    expect(workload.rows).toEqual(Int32Array.of(2, 0, 1)) // requests 3, 0 and 2
    const { promptTokens, outputTokens } = workload.lengths!
    expect(Array.from(promptTokens.slice(0, 4))).toEqual([40, 10, 30, 40])
    // One more than the prompt asks for: the decode worker generates all of them.
    expect(Array.from(outputTokens.slice(0, 4))).toEqual([201, 211, 221, 201])
  })

  it('arrives in the simulator at the same times, and steps after the counted part are not measured', async () => {
    const profile = await loadProfile('h200-first')
    const stepsUs: number[] = []
    const { result } = simulate({
      ...benchRun(load, poisson(20), replay, 11),
      seed: 11,
      replay,
      profile,
      topology: parseTopology('2D'),
      decodePolicy: jsq(),
      onStep: (_, __, nowUs) => stepsUs.push(nowUs),
    })
    expect(stepsUs[0]).toBe(times[0]) // a step begins with the first arrival
    expect(result.allRequests).toBe(requests)
    expect(result.requests).toBe(requests - measured.first)
    expect(result.spanSeconds).toBeCloseTo((7e6 - times[measured.first]!) / 1e6, 9)
    expect(Math.max(...stepsUs)).toBeGreaterThan(7e6)
    const counted = result.activeByBatch.reduce((sum, one) => sum + one.steps, 0)
    expect(counted).toBeLessThan(stepsUs.filter(us => us >= times[measured.first]! - 1e5).length)
  })

  it('has one list per seed, starting over', () => {
    expect(benchRun(load, poisson(20), replay, 12).workload.lengths!.source).toBe('b')
    expect(benchRun(load, poisson(20), replay, 13).workload.lengths!.source).toBe('a')
  })

  it('is refused if the trace has no decode steps for a prompt, or if nothing arrives', () => {
    const missing = { ...load, prompts: [{ ...load.prompts[0]!, requests: Int32Array.of(0, 1, 2) }] }
    expect(() => benchRun(missing, poisson(20), replay, 11)).toThrow('request 1 of the trace')
    expect(() => benchRun(load, poisson(0.0001), replay, 11)).toThrow('no request in 5 s')
  })
})
