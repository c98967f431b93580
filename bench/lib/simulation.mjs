// All that the benchmarks of the simulator use of the product: `simulate` and its inputs, from dist/.
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { mulberry } from './prng.mjs'

const root = fileURLToPath(new URL('../..', import.meta.url))
export const EVALUATION = 'data/lab16-task.evaluation.safetensors'
export const CALIBRATION = 'data/lab16-task.calibration.safetensors'
export const PROFILE = 'h200-first'
/**
 * Requests per second and decode worker: a mean batch of about 35 under jsq, with the 48 decode steps of the
 * shipped trace.
 */
export const PER_DECODER_PER_SECOND = 690 / 16

const FILES = {
  simulate: 'sim/simulate.js',
  loadReplay: 'sim/replay.js',
  replayOf: 'sim/replay.js',
  createHistogram: 'sim/histogram.js',
  record: 'sim/histogram.js',
  quantilesOf: 'sim/histogram.js',
  openTrace: 'trace/trace.js',
  loadProfile: 'cost/profile-file.js',
  stepParts: 'cost/profile.js',
  stepUs: 'cost/profile.js',
  readArtifact: 'fit/artifact-read.js',
  createDecodePolicy: 'policy/create-policy.js',
  predictorOf: 'policy/create-policy.js',
  createSigner: 'signature/signer.js',
  createRandom: 'math/random.js',
}

/** The functions above, by their names. */
export async function loadSimulator(dist) {
  const load = async ([name, file]) => [name, (await import(pathToFileURL(join(dist, file)).href))[name]]
  return Object.fromEntries(await Promise.all(Object.entries(FILES).map(load)))
}

/** A path, so that another build of the product (--dist) reads this checkout's profile. */
export const loadProfile = product => product.loadProfile(join(root, 'profiles', `${PROFILE}.json`))

/** {trace, replay} of the shipped evaluation requests. The caller closes the trace. */
export async function loadEvaluation(product) {
  const trace = await product.openTrace(join(root, EVALUATION))
  return { trace, replay: await product.loadReplay(trace) }
}

/**
 * Requests with `topK` random experts in every step and layer: the time of a step depends only on the shape.
 */
export function madeUpReplay({ replayOf }, { layers, experts, topK = 8, requests = 200, steps = 48, seed }) {
  const random = mulberry(seed)
  const ids = new Uint16Array(requests * steps * layers * topK)
  const all = Uint16Array.from({ length: experts }, (_, expert) => expert)
  for (let at = 0; at < ids.length; at++) {
    // The first topK of a shuffle are distinct experts, whatever the initial order.
    const choice = at % topK
    const other = choice + Math.floor(random() * (experts - choice))
    ;[all[choice], all[other]] = [all[other], all[choice]]
    ids[at] = all[choice]
  }
  return replayOf({
    layers,
    experts,
    topK,
    ids,
    maxSteps: steps,
    steps: new Uint16Array(requests).fill(steps),
  })
}

/** The rate at which `decoders` have batches of about `batch`, with random experts. */
export function rateFor({ stepUs }, profile, { decoders, batch, experts, topK = 8, steps = 48 }) {
  const active = experts * (1 - (1 - topK / experts) ** batch)
  return (decoders * batch * 1e6) / (steps * stepUs(profile, batch, active, 0))
}

/**
 * {featuresOf, predictor}: what the router sees of each request. `fresh`: signatures and predictions are
 * computed per request, as in a gateway; otherwise once per trace row, as in `eldr simulate`, where rows
 * repeat.
 */
export async function routingOf(product, trace, artifact, fresh) {
  const cells = trace.layers * trace.experts
  const counts = await trace.prefillCounts()
  const signer = product.createSigner(artifact.primary.model)
  const make = request => {
    const of = counts.subarray(request * cells, (request + 1) * cells)
    return { counts: of, signature: signer.sign(of) }
  }
  const predictor = product.predictorOf({ artifact })
  if (fresh) return { featuresOf: make, predictor }
  const features = Array.from({ length: trace.requests }, (_, request) => make(request))
  return { featuresOf: request => features[request], predictor: remembered(predictor) }
}

function remembered(predictor) {
  const known = new Map()
  return {
    cells: predictor.cells,
    chances(request) {
      if (!known.has(request.counts)) known.set(request.counts, predictor.chances(request).slice())
      return known.get(request.counts)
    },
  }
}

/** Poisson arrivals from 0 and rows in shuffled passes, without the product's code: {arrivalsUs, rows}. */
export function drawRequests({ requests, perSecond, of, seed }) {
  const random = mulberry(seed)
  const arrivalsUs = new Float64Array(requests)
  for (let at = 1; at < requests; at++)
    arrivalsUs[at] = arrivalsUs[at - 1] - (Math.log(1 - random()) * 1e6) / perSecond
  const rows = new Int32Array(requests)
  const pass = Int32Array.from({ length: of }, (_, row) => row)
  for (let at = 0; at < requests; at++) {
    const from = at % of
    const other = from + Math.floor(random() * (of - from))
    ;[pass[from], pass[other]] = [pass[other], pass[from]]
    rows[at] = pass[from]
  }
  return { arrivalsUs, rows }
}
