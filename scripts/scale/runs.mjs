// The simulations of docs/guides/scale.md: stale views of several gateways, cells of decode workers, and
// large clusters.
import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { meanInterval } from '../../dist/sim/confidence.js'
import { exactPoint, runStaleness } from '../../dist/sim/staleness.js'
import { openStudy } from '../../dist/sim/study-pool.js'
import { changeAgainst, sweep } from '../../dist/sim/sweep.js'

const BASE = { profile: 'h200-first', arrivals: 'poisson', rows: 'replacement' }
const MEASURES = {
  p50: run => run.tpotMs.p50,
  p99: run => run.tpotMs.p99,
  imbalance: run => run.imbalance.inflight,
  experts: run => run.activeExperts,
  batch: run => run.batch,
}
const of = ({ runs }) =>
  Object.fromEntries(Object.entries(MEASURES).map(([name, value]) => [name, meanInterval(runs.map(value))]))
const changes = (base, point) => ({
  p50Change: changeAgainst(base, point, MEASURES.p50),
  p99Change: changeAgainst(base, point, MEASURES.p99),
})

/** Two clusters, both with about 42 requests in a step under jsq. */
const CLUSTERS = [
  {
    topology: '2P8D',
    rate: 400,
    requests: 6000,
    gateways: [2, 4, 8],
    policies: ['jsq', 'band', 'union', 'power_of_two', 'round_robin'],
  },
  { topology: '64D', rate: 3200, requests: 24_000, gateways: [8], policies: ['jsq', 'band', 'union'] },
]

export async function stalenessRuns({ trace, artifact, seeds, progress }) {
  const clusters = []
  for (const { topology, rate, requests, gateways, policies } of CLUSTERS) {
    const study = { ...BASE, trace, artifact, topology, requests }
    const pool = openStudy(study)
    const asked = { study, policies, rate, gateways, viewAgesMs: [5, 20, 100, null], seeds }
    const points = await runStaleness(asked, pool, (done, all) =>
      progress(`staleness, ${topology}`, done, all),
    ).finally(pool.close)
    const rows = points.map(point => ({
      policy: point.variant,
      gateways: point.gateways?.count ?? 1,
      viewAgeMs: point.gateways === undefined ? 0 : point.gateways.viewAgeMs,
      anticipating: point.gateways?.anticipating ?? false,
      ...of(point),
      ...(point.gateways && changes(exactPoint(points, point), point)),
    }))
    clusters.push({ topology, rate, requests, seeds, rows })
  }
  return { clusters }
}

/** 64 decode workers in 1, 4, 16 and 64 cells of equal size, chosen in three ways. */
export async function cellRuns({ trace, artifact, seeds, progress }) {
  const study = { ...BASE, trace, artifact, topology: '64D', requests: 24_000 }
  const rate = 3200
  const kinds = [
    undefined,
    ...[4, 16, 64].flatMap(count => ['random', 'load', 'locality'].map(by => ({ count, by }))),
  ]
  const asked = ['jsq', 'band', 'union'].flatMap(variant =>
    kinds.map(cells => ({ variant, rate, setting: cells === undefined ? {} : { cells } })),
  )
  const pool = openStudy(study)
  const onProgress = (done, all) => progress('cells', done, all)
  const points = await sweep({
    cells: asked,
    seeds: Array.from({ length: seeds }, (_, seed) => seed),
    pool,
    onProgress,
  }).finally(pool.close)
  const rows = points.map(point => {
    const base = points.find(
      ({ variant, setting }) => variant === point.variant && setting.cells === undefined,
    )
    const { cells } = point.setting
    return {
      policy: point.variant,
      cells: cells?.count ?? 1,
      by: cells?.by ?? null,
      ...of(point),
      ...(cells && changes(base, point)),
    }
  })
  return { topology: study.topology, rate, requests: study.requests, seeds, rows }
}

/** Each run has its own process, so that CPU time and memory are its own. */
export function sizeRuns({ trace, artifact, progress }) {
  const runs = [
    { workers: 64, requests: 24_000, policy: 'jsq' },
    { workers: 256, requests: 100_000, policy: 'jsq' },
    { workers: 1024, requests: 200_000, policy: 'jsq' },
    { workers: 4096, requests: 600_000, policy: 'jsq' },
    { workers: 1024, requests: 200_000, policy: 'union', fitted: true, cells: { count: 64, by: 'locality' } },
  ]
  const script = fileURLToPath(new URL('one-run.mjs', import.meta.url))
  const rows = runs.map(({ workers, requests, policy, fitted, cells }, at) => {
    const study = {
      ...BASE,
      trace,
      ...(fitted && { artifact }),
      topology: `${workers}D`,
      requests,
      ...(cells && { cells }),
    }
    const job = { variant: policy, rate: 50 * workers, seed: 0 }
    const said = execFileSync(process.execPath, [script, JSON.stringify({ study, job })], {
      encoding: 'utf8',
    })
    progress('large clusters', at + 1, runs.length)
    return { workers, requests, policy, cells: cells?.count ?? 1, ...JSON.parse(said) }
  })
  return { rows }
}
