// Times one variant of scoring in its own isolate: code that was optimised for another shape or shared with
// another variant runs up to twice as slow.
import { parentPort, workerData } from 'node:worker_threads'
import { loadEldr } from './eldr.mjs'
import { medianCall } from './measure.mjs'
import { mulberry } from './prng.mjs'
import { flatLoop, fourAccumulators, fourRows } from './scoring.mjs'

const { dist, way, centroids, width, seed, samples } = workerData
const random = mulberry(seed)
const rows = Float32Array.from({ length: centroids * width }, random)
const x = Float32Array.from({ length: width }, random)
const out = new Float32Array(centroids)
const plain = { flatLoop, fourAccumulators, fourRows }[way]
const scorer = way === 'eldr' ? (await loadEldr(dist)).scorer(rows, width) : undefined
const call = scorer ? () => scorer(x, out) : () => plain(rows, x, out)
const time = medianCall(call, { samples })
// oxlint-disable-next-line unicorn/require-post-message-target-origin -- a worker's port has no origin
parentPort.postMessage({ time, out: Array.from(out) })
