// Times decisions of one policy with many workers, in its own process, and measures the memory of the policy.
// The data is random: the time of a decision does not depend on the values.
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { median } from './measure.mjs'
import { mulberry } from './prng.mjs'

const { dist, policy: name, layers, experts, workers, seed, budgetMs } = JSON.parse(process.argv[2])
const load = file => import(pathToFileURL(join(dist, file)).href)
const [{ createDecodePolicy }, { createSigner }] = await Promise.all(
  ['policy/create-policy.js', 'signature/signer.js'].map(load),
)

const TOP_K = 8
const PROMPTS = 32
const PER_WORKER = 2 // running requests
const cells = layers * experts
const random = mulberry(seed)
const requests = Math.max(1000, 2 * workers)
const noise = (array, most) => {
  for (let at = 0; at < array.length; at++) array[at] = random() * most
  return array
}
const model = {
  transform: 'count-idf',
  modelLayers: layers,
  experts,
  layers: Uint16Array.from({ length: layers }, (_, layer) => layer),
  weights: noise(new Float32Array(cells), 1),
}
const unit = 1 / Math.sqrt(cells / 3) // about the length of a row of uniform numbers
const artifact = {
  about: { layers, experts, topK: TOP_K, workers },
  primary: {
    model,
    centroids: noise(new Float32Array(workers * cells), unit),
    signatures: noise(new Int16Array(requests * cells), 32_767 * unit),
  },
  calibration: {
    requests,
    clusterOf: Uint16Array.from({ length: requests }, (_, at) => at % workers),
    patterns: noise(new Uint8Array(requests * cells), 250),
  },
}
const signer = createSigner(model)
const prompts = Array.from({ length: PROMPTS }, () => noise(new Uint16Array(cells), 40))
const requestOf = counts => ({ id: 'x', counts, signature: signer.sign(counts) })

/** Linux only; NaN elsewhere. */
const status = () => (existsSync('/proc/self/status') ? readFileSync('/proc/self/status', 'utf8') : '')
const residentBytes = () => Number(/^VmRSS:\s+(\d+) kB/m.exec(status())?.[1] ?? NaN) * 1024

const known = noise(new Float32Array(cells), 0.5)
const predictor = { cells, chances: () => known }
globalThis.gc()
const before = residentBytes()
// The predictor's neighbours take megabytes that do not depend on the number of workers, so they are not
// counted.
const grown = createDecodePolicy(name, { workers, artifact, predictor })
for (let worker = 0; worker < workers; worker++) grown.dispatched?.({ id: 'x', counts: prompts[0] }, worker)
const stateBytes = residentBytes() - before

const policy = createDecodePolicy(name, { workers, artifact })
const running = []
for (let at = 0; at < PER_WORKER * workers && at < 2048; at++) {
  const request = requestOf(prompts[at % PROMPTS])
  policy.dispatched?.(request, at % workers)
  running.push([request, at % workers])
}
const candidates = Array.from({ length: workers }, (_, worker) => ({ worker, inflight: 20 + (worker % 7) }))
const times = { pick: [], dispatched: [], released: [] }
const timed = (what, call) => {
  const from = performance.now()
  const result = call()
  times[what].push(performance.now() - from)
  return result
}
for (
  const end = performance.now() + budgetMs;
  times.pick.length < 20 || (performance.now() < end && times.pick.length < 4_000);
) {
  const counts = prompts[Math.floor(random() * PROMPTS)]
  const { request, worker } = timed('pick', () => {
    const asked = requestOf(counts)
    return { request: asked, worker: policy.pick(asked, candidates, { random }).worker }
  })
  timed('dispatched', () => policy.dispatched?.(request, worker))
  running.push([request, worker])
  const [old] = running.splice(Math.floor(random() * running.length), 1)
  timed('released', () => policy.released?.(...old))
}
const half = list => list.slice(Math.floor(list.length / 2)) // the first half is warm-up
const medians = Object.entries(times).map(([what, list]) => [what, median(half(list))])
console.log(JSON.stringify({ ...Object.fromEntries(medians), samples: times.pick.length, stateBytes }))
