import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { loadProfile, profileNames } from '../cost/profile-file.ts'
import { type AttentionWindow, type CostProfile, layerWeights, stepUs } from '../cost/profile.ts'
import { createRandom } from '../math/random.ts'
import { jsq } from '../policy/jsq.ts'
import { type DecodeLimits, DecodeWorker } from './decode-worker.ts'
import { replayOf } from './replay.ts'
import { RequestPool } from './requests.ts'
import { simulate } from './simulate.ts'
import { parseTopology } from './topology.ts'

const [layers, experts, topK, rows, steps] = [3, 40, 4, 20, 5]
const source = createRandom(7)
const ids = Uint8Array.from({ length: rows * steps * layers * topK }, () => source.below(experts))
const [rowSteps, rowPrompts] = [
  Array.from({ length: rows }, () => steps),
  Array.from({ length: rows }, () => 9),
]
const replay = replayOf({
  layers,
  experts,
  topK,
  ids,
  maxSteps: steps,
  steps: rowSteps,
  promptTokens: rowPrompts,
})
/** Shipped profiles without noise and host part, whose step times are the formula's alone. */
const profiles = (await Promise.all((await profileNames()).map(loadProfile))).map(profile => ({
  ...profile,
  decode: { ...profile.decode, noise: undefined, host: undefined },
}))

/** Step time by the profile's formula, for requests of these contexts. */
function writtenOutUs({ shape, decode }: CostProfile, active: number, contexts: readonly number[]): number {
  const attendedUs = (perContextKTokenUs: number, most: number) =>
    contexts.reduce((us, context) => us + (perContextKTokenUs * Math.min(context, most)) / 1000, 0)
  return (
    decode.baseUs +
    decode.perRequestUs * contexts.length +
    shape.layers * (decode.perLayerUs + decode.perActiveExpertUs * active) +
    attendedUs(decode.perContextKTokenUs, Infinity) +
    (decode.windows ?? []).reduce(
      (us, { tokens, perContextKTokenUs }) => us + attendedUs(perContextKTokenUs, tokens),
      0,
    )
  )
}

const capped = (windows: readonly AttentionWindow[], contexts: readonly number[]) =>
  windows.map(({ tokens }) => contexts.reduce((sum, context) => sum + Math.min(context, tokens), 0))

describe.each(profiles.map(profile => ({ name: profile.name, profile })))(
  'a request alone on $name',
  ({ profile }) => {
    /** Steps of one request, each with its context and experts. */
    function alone(promptTokens: number, outputTokens: number) {
      const lengths = {
        source: 'test',
        timesUs: new Float64Array(1),
        promptTokens: Int32Array.of(promptTokens),
        outputTokens: Int32Array.of(outputTokens),
      }
      const seen: { readonly us: number; readonly active: number }[] = []
      const { result } = simulate({
        workload: { arrivals: { kind: 'poisson', perSecond: 1 }, rows: Int32Array.of(4), lengths },
        requests: 1,
        warmUpShare: 0,
        coolDownShare: 0,
        seed: 1,
        replay,
        profile,
        topology: parseTopology('1D'),
        decodePolicy: jsq(),
        onStep: ({ stepUs, active }) => seen.push({ us: stepUs, active }),
      })
      return { seen, latencyUs: result.latencyMs.mean * 1000 }
    }

    // Below, at and past each window; any context if there is none.
    const windows = profile.decode.windows ?? []
    const edges = windows.length === 0 ? [1_000] : windows.map(({ tokens }) => tokens)

    it.each(edges)('takes exactly its step times around a context of %i', edge => {
      const { seen, latencyUs } = alone(edge - 6, 12)
      const contexts = seen.map((_, step) => edge - 6 + step + 1)
      expect([contexts[0], contexts.at(-1)]).toEqual([edge - 5, edge + 5])
      for (const [step, { us, active }] of seen.entries()) {
        const context = contexts[step]!
        expect(us).toBe(stepUs(profile, 1, active, context, capped(windows, [context])))
        expect(us).toBeCloseTo(writtenOutUs(profile, active, [context]), 6)
      }
      expect(latencyUs).toBeCloseTo(
        seen.reduce((sum, { us }) => sum + us, 0),
        6,
      )
    })

    it.each(edges)(
      'pays for one more token of context in all layers up to %i, and beyond it in those without that window',
      edge => {
        const { seen } = alone(edge - 6, 12)
        const moeUs = (active: number) => profile.shape.layers * profile.decode.perActiveExpertUs * active
        const rest = seen.map(({ us, active }) => us - moeUs(active))
        for (let step = 1; step < rest.length; step++) {
          const context = edge - 6 + step + 1
          const open = windows.filter(({ tokens }) => context <= tokens)
          const perTokenUs =
            open.reduce((us, window) => us + window.perContextKTokenUs, profile.decode.perContextKTokenUs) /
            1000
          expect(rest[step]! - rest[step - 1]!).toBeCloseTo(perTokenUs, 6)
        }
      },
    )
  },
)

describe('a decode worker', () => {
  interface Arrival {
    readonly promptTokens: number
    readonly decodeTokens: number
    readonly atStep: number
  }

  /** Runs all requests and checks each step; returns the number of preemptions. */
  function preemptionsIn(
    windowTokens: readonly number[],
    arrivals: readonly Arrival[],
    limits: DecodeLimits,
  ): number {
    // Costs that distinguish the sums; recomputing a context is free, so that a step takes what its batch
    // says.
    const windows = windowTokens.map((tokens, w) => ({ tokens, perContextKTokenUs: 7 ** (w + 1) }))
    const [{ decode, ...rest }] = profiles as [CostProfile]
    const profile = {
      ...rest,
      decode: { ...decode, perContextKTokenUs: 3, windows },
      prefill: { baseUs: 0, perTokenUs: 0 },
    }
    const pool = new RequestPool()
    const worker = new DecodeWorker({
      replay,
      pool,
      profile,
      limits,
      weights: layerWeights(profile.shape.layers, layers),
    })
    let ended = 0
    for (let step = 0; ended < arrivals.length; step++) {
      for (const { promptTokens, decodeTokens } of arrivals.filter(({ atStep }) => atStep === step)) {
        const slot = pool.take()
        pool.row[slot] = slot % rows
        pool.promptTokens[slot] = promptTokens
        pool.decodeTokens[slot] = decodeTokens
        worker.enqueue(slot)
      }
      const us = worker.startStep(step)
      if (us === undefined) continue
      const contexts = Array.from({ length: worker.batch }, (_, at) => worker.member(at).contextTokens)
      const total = contexts.reduce((a, b) => a + b, 0)
      expect(us).toBe(stepUs(profile, worker.batch, worker.active, total, capped(windows, contexts)))
      worker.endStep(slot => {
        pool.giveBack(slot)
        ended++
      })
    }
    return worker.preemptions
  }

  it('tracks exactly what its batch attends to, through joins, ends, preemptions and returns', () => {
    const sizes = fc.array(fc.integer({ min: 1, max: 80 }), { maxLength: 3 })
    const tokens = fc.integer({ min: 1, max: 60 })
    const arrivals = fc.array(
      fc.record({ promptTokens: tokens, decodeTokens: tokens, atStep: fc.nat({ max: 30 }) }),
      { maxLength: 30 },
    )
    const limits = fc.record({
      maxBatch: fc.constantFrom(1, 3, 64),
      kvTokens: fc.constantFrom(1, 60, 200, 1e6),
      allToAllUs: fc.constant(0),
    })
    fc.assert(
      fc.property(sizes, arrivals, limits, (...run) => void preemptionsIn(...run)),
      { numRuns: 200 },
    )
    // Ten that fit together when they join but not when they have grown.
    const crowd = Array.from({ length: 10 }, (_, atStep) => ({ promptTokens: 15, decodeTokens: 40, atStep }))
    expect(preemptionsIn([20, 50], crowd, { maxBatch: 64, kvTokens: 200, allToAllUs: 0 })).toBeGreaterThan(5)
  })
})

describe('a slow decode worker', () => {
  it.each(profiles.map(profile => ({ name: profile.name, profile })))(
    'takes 1.5 times as long for the same step on $name, host and device alike',
    ({ profile: bare }) => {
      const host = { baseUs: 100, perRequestUs: 5, overlaps: false }
      const profile = { ...bare, decode: { ...bare.decode, host } }
      const parts = (slowness?: number) => {
        const pool = new RequestPool()
        const weights = layerWeights(profile.shape.layers, layers)
        const limits = { maxBatch: 4, kvTokens: 1000, allToAllUs: 0 }
        const worker = new DecodeWorker({ replay, pool, profile, limits, weights, slowness })
        const slot = pool.take()
        pool.promptTokens[slot] = 10
        pool.decodeTokens[slot] = 3
        worker.enqueue(slot)
        worker.startStep(0)
        return [worker.hostUs, worker.deviceUs, worker.stepUs]
      }
      const usual = parts()
      expect(usual[0]).toBe(105)
      parts(1.5).forEach((us, part) => expect(us).toBeCloseTo(1.5 * usual[part]!, 6))
    },
  )
})
