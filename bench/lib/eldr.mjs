// All uses of the product: the command line and the functions of dist/ that the benchmarks call.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { median, runProcess } from './measure.mjs'

/**
 * Stages of both sides. `ours`: name in the fit's summary; `theirs`: names in fit_numpy.py with the same
 * work.
 */
export const STAGES = [
  { ours: 'read the trace', theirs: ['read'] },
  { ours: 'ρ by transform', theirs: ['pattern', 'transforms'] },
  { ours: 'layer selection', theirs: ['layers'] },
  { ours: 'clusters', theirs: ['signatures', 'clusters', 'vanilla'] },
  { ours: 'write', theirs: ['write'] },
]

/** Total milliseconds of the named stages in the median run; undefined if a stage is missing. */
export function stageMs(measured, names) {
  if (measured === undefined) return undefined
  const sums = measured.runs.map(({ result }) => {
    const found = names.map(name => result.stages.find(stage => stage.name === name)?.ms ?? NaN)
    return found.reduce((sum, ms) => sum + ms, 0)
  })
  const middle = median(sums)
  return Number.isNaN(middle) ? undefined : middle
}

/** Time outside the stages: start, imports, output. */
export function restMs(measured) {
  return (
    measured &&
    median(
      measured.runs.map(({ wallMs, result }) => wallMs - result.stages.reduce((sum, { ms }) => sum + ms, 0)),
    )
  )
}

/** @param dist the built product, dist/ of any checkout */
export async function loadEldr(dist) {
  const main = join(dist, 'cli', 'main.js')
  if (!existsSync(main)) throw new Error(`${main} is missing: run \`npm run build\` in the repository first`)
  const load = file => import(pathToFileURL(join(dist, file)).href)
  const [
    { assignBalanced },
    { rowMatrixOf },
    { bytesFor, createKernel, layOut, SORT_COUNTER_BYTES },
    { isLoadBalancer, policyNamed },
  ] = await Promise.all(
    ['math/balanced-assignment.js', 'math/row-matrix.js', 'math/kernel.js', 'policy/decode-policy.js'].map(
      load,
    ),
  )

  async function command(...args) {
    const { stdout, ...run } = await runProcess(process.execPath, [
      main,
      ...args.map(String),
      '--json',
      '--quiet',
    ])
    return { ...run, result: JSON.parse(stdout) }
  }

  return {
    /**
     * `eldr fit` as a user runs it: {wallMs, peakBytes, result}, the result being the summary that `--json`
     * prints.
     */
    fit: (trace, { workers, pairs, seed, out }) =>
      command('fit', trace, '--workers', workers, '--pairs', pairs, '--seed', seed, '--out', out),

    /** `eldr refit`: clusters for another number of workers, from the artifact of a fit. */
    refit: (artifact, { workers, out }) => command('refit', artifact, '--workers', workers, '--out', out),

    /** Whether a policy goes by load alone, by its name. */
    isLoadBalancer: policy => isLoadBalancer(policyNamed(policy)),

    /** Cluster of each point. costs: [points × clusters] float64. */
    assign(costs, points, clusters) {
      return assignBalanced({ costs, points, sinks: clusters, capacity: Math.ceil(points / clusters) })
    },

    /** Function (x, out) that scores x against the rows with the kernel chosen for this engine. */
    scorer(rows, width) {
      const matrix = rowMatrixOf(rows, width)
      return (x, out) => matrix.similarities(x, out)
    },

    /**
     * {ranks(), rho()} of float32 values: ranks of rankdata minus their mean, and Spearman's ρ against fixed
     * ranks.
     */
    ranker(values) {
      const n = values.length
      const kernel = createKernel(bytesFor(4 * n, 8 * n, 8 * n, 8 * n, SORT_COUNTER_BYTES))
      const { f32, f64, u32 } = layOut(kernel)
      const [input, ranks, a, b, counters] = [
        f32(n),
        f64(n),
        u32(2 * n),
        u32(2 * n),
        u32(SORT_COUNTER_BYTES / 4),
      ]
      const sort = () => {
        input.view.set(values) // the sort overwrites them
        return kernel.sort(input.at, n, a.at, b.at, counters.at)
      }
      const squares = kernel.centredRanks(sort(), n, ranks.at)
      return {
        ranks: () => kernel.centredRanks(sort(), n, ranks.at),
        rho: () => kernel.correlation(sort(), n, ranks.at, squares),
      }
    },
  }
}
