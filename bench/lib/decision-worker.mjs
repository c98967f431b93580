// Times decisions of one policy at one shape, in its own isolate (see scoring-worker.mjs).
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { parentPort, workerData } from 'node:worker_threads'
import { makeCluster, plainPolicies } from './decision.mjs'
import { median } from './measure.mjs'
import { mulberry } from './prng.mjs'

const { dist, way, policy: name, samples, ...shape } = workerData
const cluster = await makeCluster(dist, shape)
const { counts, artifact, model, running } = cluster
const random = mulberry(shape.seed + 1)
const inflight = Array.from({ length: shape.workers }, () => running)
const draw = () => counts[Math.floor(random() * counts.length)]
const times = { pick: [], dispatched: [], released: [] }
const timed = (what, call) => {
  const from = performance.now()
  const result = call()
  times[what].push(performance.now() - from)
  return result
}

if (way === 'plain') {
  const plain = plainPolicies(cluster)
  for (let n = 0; n < samples; n++) {
    const of = draw()
    timed('pick', () => plain[name](of, inflight))
  }
} else {
  const load = file => import(pathToFileURL(join(dist, file)).href)
  const [{ createDecodePolicy }, { createSigner }] = await Promise.all(
    ['policy/create-policy.js', 'signature/signer.js'].map(load),
  )
  const policy = createDecodePolicy(name, { workers: shape.workers, artifact })
  const signer = createSigner(model)
  const requestOf = of => ({ id: 'x', counts: of, signature: signer.sign(of) })
  const started = []
  for (let n = 0; n < running * shape.workers; n++) {
    const request = requestOf(draw())
    policy.dispatched?.(request, n % shape.workers)
    started.push([request, n % shape.workers])
  }
  for (let n = 0; n < samples; n++) {
    const of = draw()
    const candidates = inflight.map((load, worker) => ({ worker, inflight: load }))
    const { request, decision } = timed('pick', () => {
      const asked = requestOf(of)
      return { request: asked, decision: policy.pick(asked, candidates, { random }) }
    })
    timed('dispatched', () => policy.dispatched?.(request, decision.worker))
    started.push([request, decision.worker])
    const [old] = started.splice(Math.floor(random() * started.length), 1)
    timed('released', () => policy.released?.(...old))
  }
}
const half = list => list.slice(Math.floor(list.length / 2)) // the first half is warm-up
const medians = Object.entries(times).map(([what, list]) => [
  what,
  list.length > 0 ? median(half(list)) : undefined,
])
// oxlint-disable-next-line unicorn/require-post-message-target-origin -- a worker's port has no origin
parentPort.postMessage(Object.fromEntries(medians))
