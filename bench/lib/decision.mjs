// State of a busy cluster from seeded numbers, as a router sees it when a prefill ends. Used by
// decision-worker.mjs.
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { mulberry } from './prng.mjs'

const TOP_K = 8
const REQUESTS = 1000 // calibration requests
const RUNNING = 30 // requests on each worker

/**
 * Counts of prompts in K groups with different experts: [requests][layers × experts] u16; each layer sums to
 * top_k × tokens.
 */
function makeCounts({ layers, experts, groups, requests, random }) {
  const favourites = Array.from({ length: groups }, () =>
    Float64Array.from({ length: layers * experts }, () => random() ** 6),
  )
  return Array.from({ length: requests }, (_, r) => {
    const taste = favourites[r % groups]
    const tokens = 64 + Math.floor(random() * 384)
    const counts = new Uint16Array(layers * experts)
    for (let layer = 0; layer < layers; layer++) {
      const weights = Float64Array.from(
        { length: experts },
        (__, e) => taste[layer * experts + e] * (0.5 + random()),
      )
      const total = weights.reduce((a, b) => a + b)
      for (let e = 0; e < experts; e++)
        counts[layer * experts + e] = Math.min(tokens, Math.round((weights[e] / total) * tokens * TOP_K))
    }
    return counts
  })
}

/** {counts, model, artifact}: an artifact like that of a fit with all layers kept, and prompts to route. */
export async function makeCluster(dist, { layers, experts, workers, seed }) {
  const load = file => import(pathToFileURL(join(dist, file)).href)
  const [{ packedRows, packUnit }, { centroidsOf }, { createSigner }] = await Promise.all(
    ['math/packed-rows.js', 'math/centroids.js', 'signature/signer.js'].map(load),
  )
  const random = mulberry(seed)
  const requests = Math.max(REQUESTS, 2 * workers)
  const counts = makeCounts({ layers, experts, groups: workers, requests, random })
  const model = {
    transform: 'count-idf',
    modelLayers: layers,
    experts,
    layers: Uint16Array.from({ length: layers }, (_, layer) => layer),
    weights: Float32Array.from({ length: layers * experts }, () => 0.1 + random()),
  }
  const signer = createSigner(model)
  const dimensions = layers * experts
  const signatures = new Int16Array(requests * dimensions)
  counts.forEach((of, r) => signatures.set(packUnit(signer.sign(of)), r * dimensions))
  const clusterOf = Int32Array.from({ length: requests }, (_, r) => r % workers)
  const patterns = new Uint8Array(requests * dimensions)
  counts.forEach((of, r) => of.forEach((n, c) => (patterns[r * dimensions + c] = Math.min(250, n))))
  const centroids = centroidsOf(packedRows(signatures, dimensions), clusterOf, workers)
  const about = { layers, experts, topK: TOP_K, workers }
  const artifact = {
    about,
    primary: { model, centroids, signatures },
    calibration: { requests, clusterOf: Uint16Array.from(clusterOf), patterns },
  }
  return { counts, model, artifact, running: RUNNING, topK: TOP_K }
}

/** The same decisions in straightforward loops: no kernel, no cached exponentials, all neighbours. */
export function plainPolicies({ model, artifact, topK }) {
  const { experts, modelLayers: layers, weights } = model
  const { centroids, signatures } = artifact.primary
  const { patterns, requests } = artifact.calibration
  const { workers } = artifact.about
  const cells = layers * experts
  const sums = Array.from({ length: workers }, () => new Float64Array(cells))

  function sign(counts) {
    const x = Array.from(counts, (n, c) => n * weights[c])
    const length = Math.hypot(...x)
    return x.map(value => value / length)
  }
  const dot = (rows, at, x) => {
    let sum = 0
    for (let d = 0; d < x.length; d++) sum += rows[at + d] * x[d]
    return sum
  }
  function chances(counts) {
    const x = sign(counts)
    const near = Array.from({ length: requests }, (_, r) => ({
      r,
      similarity: dot(signatures, r * cells, x) / 32_767,
    }))
    const best = near.sort((a, b) => b.similarity - a.similarity).slice(0, 16)
    const weight = best.map(({ similarity }) => Math.exp((similarity - best[0].similarity) / 0.05))
    const total = weight.reduce((a, b) => a + b)
    return Float64Array.from(counts, (n, c) => {
      const layer = Math.floor(c / experts)
      let sum = 0
      for (let e = 0; e < experts; e++) sum += counts[layer * experts + e]
      const mean = best.reduce(
        (mix, { r }, at) => mix + (weight[at] / total) * (patterns[r * cells + c] / 255),
        0,
      )
      return Math.min(0.98, 0.3 * Math.min(0.98, (topK * n) / sum) + 0.7 * mean)
    })
  }
  return {
    band(counts, inflight) {
      const x = sign(counts)
      const similarity = inflight.map((_, w) => dot(centroids, w * cells, x))
      const best = Math.max(...similarity)
      const band = [...similarity.keys()].filter(w => similarity[w] >= best - 0.1)
      return band.sort((a, b) => inflight[a] - inflight[b])[0]
    },
    union(counts, inflight) {
      const p = chances(counts)
      const cost = inflight.map((n, w) => {
        let [union, growth] = [0, 0]
        for (let c = 0; c < cells; c++) {
          const idle = Math.exp(sums[w][c])
          union += 1 - idle
          growth += p[c] * idle
        }
        return 148.8 * ((union + growth * (1 + n)) / layers) + 50 * n
      })
      return cost.indexOf(Math.min(...cost))
    },
    dispatched(counts, worker) {
      chances(counts).forEach((p, c) => (sums[worker][c] += Math.log(1 - p)))
    },
  }
}
