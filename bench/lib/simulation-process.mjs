// Times one variant of the simulator in its own process, so that no other variant affects its machine code or
// heap:
//
//   node --expose-gc simulation-process.mjs '{"dist": …, "way": "eldr", "policy": "jsq", "decoders": 16, …}'
//
// Prints JSON: the result of the run, the decode tokens that it simulated, and the times of all repeats. With
// `memory` it runs once, untimed, and reports the memory late in that run.
import { ACTIVE, simulatePlainly } from './plain-simulator.mjs'
import {
  drawRequests,
  loadEvaluation,
  loadProfile,
  loadSimulator,
  madeUpReplay,
  rateFor,
  routingOf,
} from './simulation.mjs'

const spec = JSON.parse(process.argv[2])
const { policy = 'jsq', decoders, requests, seed, repeat } = spec
/** V8 compiles during the first runs: short runs need several of them, a long run is warm before its end. */
const WARM_UP_MS = 1_000
const product = await loadSimulator(spec.dist)
const profile = await loadProfile(product)
const { trace, replay } = spec.shape
  ? { replay: madeUpReplay(product, { ...spec.shape, seed }) }
  : await loadEvaluation(product)
const perSecond = spec.perSecond ?? rateFor(product, profile, { decoders, batch: spec.batch, ...spec.shape })
const steps = replay.steps[0]
if (replay.steps.some(made => made !== steps))
  throw new Error('rows of different lengths: tokens would have to be counted')

const { run, resultOf } = spec.way === 'plain' ? await plain() : await eldr()
await trace?.close()
if (spec.memory) console.log(JSON.stringify(memoryOf()))
else console.log(JSON.stringify(timesOf()))

function timesOf() {
  const started = performance.now()
  do run()
  while (performance.now() - started < WARM_UP_MS)
  const times = []
  let last
  for (let n = 0; n < repeat; n++) {
    const [from, used] = [performance.now(), process.cpuUsage()]
    last = run()
    const { user, system } = process.cpuUsage(used)
    times.push({ wallMs: performance.now() - from, cpuMs: (user + system) / 1e3 })
  }
  return { ...resultOf(last), perSecond, tokens: requests * steps, times }
}

async function eldr() {
  const artifact = spec.artifact && (await product.readArtifact(spec.artifact))
  const { featuresOf, predictor } = artifact ? await routingOf(product, trace, artifact, spec.fresh) : {}
  const cost = product.stepParts(profile)
  const fixed =
    spec.rows === 'fixed' ? drawRequests({ requests, perSecond, of: replay.rows, seed }) : undefined
  const workload = fixed
    ? { arrivals: { kind: 'recorded', timesUs: fixed.arrivalsUs }, rows: fixed.rows }
    : { arrivals: { kind: 'poisson', perSecond }, rows: spec.rows }
  return {
    run: (onArrival = undefined) => {
      const decodePolicy = product.createDecodePolicy(policy, {
        workers: decoders,
        cost,
        artifact,
        predictor,
      })
      const seen = onArrival ? request => (onArrival(), featuresOf?.(request)) : featuresOf
      const topology = { prefill: 0, decode: decoders, ranks: 1 }
      return product.simulate({
        workload,
        requests,
        seed,
        replay,
        profile,
        topology,
        decodePolicy,
        featuresOf: seen,
      }).result
    },
    resultOf: ({ tpotMs, activeExperts, batch, preemptions }) => ({
      tpotMs,
      activeExperts,
      batch,
      preemptions,
    }),
  }
}

async function plain() {
  const { layers, experts, topK, maxSteps } = trace
  if (trace.requests !== replay.rows)
    throw new Error('a request without a decode step: rows would have other numbers here')
  const [ids, made] = [await trace.decodeExpertIds(), await trace.decodeSteps()]
  const activeOf = ACTIVE[spec.active]({ ids, steps: made, maxSteps, layers, experts, topK })
  const { arrivalsUs, rows } = drawRequests({ requests, perSecond, of: trace.requests, seed })
  return {
    run: () => {
      // The random stream with which the product breaks ties.
      const random = product.createRandom(seed).fork(4).uniform
      return simulatePlainly({ activeOf, steps: made, profile, workers: decoders, arrivalsUs, rows, random })
    },
    resultOf: ({ tpotUs, ...rest }) => {
      // Into the product's buckets, so that quantiles can be compared bit for bit.
      const histogram = product.createHistogram()
      for (const us of tpotUs) product.record(histogram, us)
      return { tpotMs: product.quantilesOf(histogram, 1e-3), ...rest }
    },
  }
}

/** Live bytes and resident memory when 95 % of the requests have arrived. */
function memoryOf() {
  let arrived = 0
  let found
  run(() => {
    if (++arrived !== Math.floor(0.95 * requests)) return
    // Arrays outside the heap are freed one collection after their owners.
    for (let n = 0; n < 3; n++) globalThis.gc()
    const { rss, heapUsed, arrayBuffers } = process.memoryUsage()
    found = { rss, heapUsed, arrayBuffers }
  })
  return found
}
