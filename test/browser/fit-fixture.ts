import type { FitFigures, FitSummary } from '../../src/fit/summary.ts'

export interface FixtureShape {
  readonly workers: number
  readonly layers: number
  readonly experts: number
  readonly domains: readonly string[]
  readonly requests: number
}

/** A synthetic fit of any shape, without a trace; deterministic. */
export function fitFixture(shape: Partial<FixtureShape> = {}): { summary: FitSummary; figures: FitFigures } {
  const { workers, layers, experts, domains, requests }: FixtureShape = {
    workers: 8,
    layers: 16,
    experts: 64,
    domains: ['code', 'legal', 'math', 'medical'],
    requests: 1000,
    ...shape,
  }
  const random = sequence()
  const sizes = Array.from(
    { length: workers },
    (_, k) => Math.floor(requests / workers) + (k < requests % workers ? 1 : 0),
  )
  const peak = Math.max(1, Math.round(layers * 0.4))
  const order = Array.from({ length: layers }, (_, i) => (i * 7 + 3) % layers)
  const curve = (top: number) =>
    order.map((_, i) => top - 0.06 * Math.exp(-i / 2) - 0.03 * Math.max(0, (i + 1 - peak) / layers))
  const domainOf = (request: number) =>
    domains.length === 0 ? -1 : Math.floor(domains.length * (request / requests) ** 1.5)
  const clusterOf = (request: number) => Math.min(workers - 1, Math.floor((request / requests) * workers))
  const centre = (cluster: number) => ({ x: Math.cos(cluster * 2.4) * 0.5, y: Math.sin(cluster * 2.4) * 0.4 })
  const composition = (cluster: number) => {
    const counts = domains.map(() => 0)
    if (domains.length > 0)
      for (let r = 0; r < requests; r++) if (clusterOf(r) === cluster) counts[domainOf(r)]! += 1
    return counts
  }
  const plain = sizes.map((_, k) => Math.exp(-k / (workers / 3)) + 0.1)
  const plainTotal = plain.reduce((a, b) => a + b, 0)
  const summary: FitSummary = {
    source: {
      file: '/data/traces/synthetic.calibration.safetensors',
      sha256: '8b93874a3145c5c6'.repeat(4),
      model: 'Made-30B-A3B',
      workload: 'task',
      requests,
      layers,
      experts,
      topK: 8,
      domains,
      version: '0.1.0',
    },
    workers,
    balance: 'exact',
    seed: 7,
    transforms: [
      { name: 'count', rho: 0.704, pairs: 20_000, requests, servable: true },
      { name: 'count-idf', rho: 0.711, pairs: 20_000, requests, servable: true },
      { name: 'sqrt', rho: 0.648, pairs: 20_000, requests, servable: true },
      { name: 'binary', rho: 0.255, pairs: 20_000, requests, servable: true },
      { name: 'gate-prob', rho: 0.67, pairs: 19_000, requests: Math.ceil(requests / 2), servable: false },
      { name: 'gate-logit', rho: 0.66, pairs: 19_000, requests: Math.ceil(requests / 2), servable: false },
    ],
    chosen: 'count-idf',
    asked: { transform: 'auto', layers: 'auto' },
    curves: [
      { transform: 'count-idf', order, rho: curve(0.742), peak },
      { transform: 'count', order, rho: curve(0.73), peak },
    ],
    layers: order.slice(0, peak).sort((a, b) => a - b),
    rho: curve(0.742)[peak - 1]!,
    clusters: sizes.map((size, k) => ({
      size,
      meanSimilarity: 0.8 + 0.15 * random(),
      domains: composition(k),
    })),
    meanSimilarity: 0.875,
    iterations: 61,
    vanillaSizes: plain.map(share => Math.round((share / plainTotal) * requests)),
    bestSimilarity: [0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1].map(q => ({
      q,
      value: 0.5 + 0.48 * q ** 0.3,
    })),
    placement: {
      ranks: 8,
      batch: 32,
      perCluster: sizes.map(() => ({
        linear: 11 + random(),
        global: 10.4 + random(),
        own: 9.6 + random() / 2,
        ideal: 9.5,
      })),
    },
    stages: [
      { name: 'read the trace', ms: 93.2 },
      { name: 'layer selection', ms: 1897 },
      { name: 'clusters', ms: 273 },
    ],
    notes: ['12 of 1,000 requests have no signature and were left out.'],
  }
  const figures: FitFigures = {
    pca: {
      points: Array.from({ length: requests }, (_, r) => {
        const { x, y } = centre(clusterOf(r))
        return {
          x: x + (random() - 0.5) / 4,
          y: y + (random() - 0.5) / 4,
          domain: domainOf(r),
          cluster: clusterOf(r),
        }
      }),
      centroids: sizes.map((_, k) => centre(k)),
      explained: [0.22, 0.16],
    },
    ...(domains.length > 0 && {
      heat: {
        layer: Math.floor(layers / 2),
        experts: Array.from({ length: experts }, (_, e) => (e * 37) % experts),
        rows: domains.map((domain, d) => ({
          domain,
          values: Array.from({ length: experts }, (_, e) =>
            Math.floor((e / experts) * domains.length) === d ? 1 + 3 * random() : 1.2 * random(),
          ),
        })),
      },
    }),
    activation: {
      correlation: 0.983,
      points: Array.from({ length: layers * experts }, () => {
        const share = -Math.log(1 - random() * 0.999)
        return { x: share, y: Math.max(0, share * (0.85 + 0.3 * random())) }
      }),
    },
  }
  return { summary, figures }
}

/**
 * The largest shape that the report promises to draw well: names of every length, the largest model, a very
 * large cluster.
 */
export function extremeFixture(): { summary: FitSummary; figures: FitFigures } {
  const long = 'contracts, statutes and case law of the European Union (English, translated)'
  const domains = [
    long,
    'WWWWWWWWWWWWWWWWWWWWWWWW',
    '法律文件和判例',
    ...Array.from({ length: 11 }, (_, i) => `domain number ${i + 4}`),
  ]
  return fitFixture({ workers: 256, layers: 94, experts: 512, domains, requests: 16_000 })
}

/** Uniform in [0, 1): a fixed sequence, so that fixtures never change. */
function sequence(): () => number {
  let state = 12_345
  return () => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0
    return (state >>> 8) / 2 ** 24
  }
}
