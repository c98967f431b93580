// Section 1: the whole fit on a real trace compared with the same steps in NumPy and SciPy, and its two most
// expensive stages.
import { existsSync } from 'node:fs'
import { basename, join, relative } from 'node:path'
import { restMs, STAGES, stageMs } from '../lib/eldr.mjs'
import { medianCall, medianRun } from '../lib/measure.mjs'
import { numpyFit } from '../lib/numpy-fit.mjs'
import { mulberry } from '../lib/prng.mjs'
import { ms, times } from '../lib/table.mjs'

const WORKERS = 16
const PAIRS = 20_000

function findTrace(root) {
  const name = 'lab16-task.calibration.safetensors'
  const found = [join(root, '../shared/traces', name), join(root, 'data', name)].find(file =>
    existsSync(file),
  )
  if (found === undefined) throw new Error(`neither ../shared/traces nor data/ has ${name}`)
  return found
}

export async function lab16({ eldr, python, root, scratch, seed, quick }) {
  const trace = findTrace(root)
  const repeat = quick ? 1 : 5
  const ours = await medianRun(repeat, () =>
    eldr.fit(trace, { workers: WORKERS, pairs: PAIRS, seed, out: join(scratch, 'ours.safetensors') }),
  )
  const theirs =
    python.run &&
    (await numpyFit(python, trace, {
      workers: WORKERS,
      pairs: PAIRS,
      seed,
      repeat,
      out: join(scratch, 'numpy.safetensors'),
    }))
  const units =
    theirs &&
    (await python.run('fit_numpy.py', [trace, '--seed', seed, '--units', '--json'].map(String), theirs.env))
      .result.units

  const random = mulberry(seed)
  const ranker = eldr.ranker(Float32Array.from({ length: PAIRS }, random))
  const unit = { ranks: medianCall(ranker.ranks), rho: medianCall(ranker.rho) }

  return {
    title: 'A real trace: lab16-task, 1,000 requests, 16 layers, 128 experts, 16 workers',
    notes: [
      `Trace: ${basename(trace)}. Median of ${repeat} after a warm-up; 20,000 pairs, 3 restarts.`,
      ...(theirs
        ? [
            `NumPy ${theirs.result.numpy}, SciPy ${theirs.result.scipy}, BLAS threads: ${theirs.threads} (the faster of one and all).`,
          ]
        : []),
      `Ranks: ${PAIRS.toLocaleString('en')} float32 values, the same on both sides; np.argsort alone, without ties or ranks, takes ${ms(units?.argsort_ms)}.`,
    ],
    tables: [
      {
        head: ['time', 'ELDR', 'NumPy/SciPy', 'ratio'],
        rows: [
          row('whole process, start included', ours.wallMs, theirs?.wallMs),
          ...STAGES.map(stage =>
            row(`stage: ${stage.ours}`, stageMs(ours, [stage.ours]), stageMs(theirs, stage.theirs)),
          ),
          row('the rest: start, imports, output', restMs(ours), restMs(theirs)),
          row('one ranking (scipy.stats.rankdata)', unit.ranks, units?.ranks_ms),
          row('one rank correlation against fixed ranks', unit.rho, units?.rho_ms),
        ],
      },
      {
        head: ['found', 'ELDR', ...(theirs ? ['NumPy/SciPy'] : [])],
        rows: compare(ours.result, theirs?.result),
      },
    ],
    data: { trace: relative(root, trace), ours: pick(ours), theirs: theirs && pick(theirs), unit, units },
  }
}

const row = (name, mine, other) => [name, ms(mine), ms(other), times(other, mine)]
const fixed = value => value?.toFixed(4) ?? '–'
const pick = ({ wallMs, peakBytes, threads, runs }) => ({
  wallMs,
  peakBytes,
  threads,
  runs: runs.map(run => ({ wallMs: run.wallMs, stages: run.result.stages })),
})

/** Both sides must find the same result. Pairs and seeds differ, so figures agree within sampling error. */
function compare(ours, theirs) {
  const both = (name, mine, other) => [name, mine, ...(theirs ? [other] : [])]
  return [
    both('transform', ours.chosen, theirs?.chosen),
    both('layers kept', ours.layers.length, theirs?.layers.length),
    both('ρ', fixed(ours.rho), fixed(theirs?.peak)),
    both('mean similarity to own centroid', fixed(ours.meanSimilarity), fixed(theirs?.meanSimilarity)),
    both(
      'largest cluster',
      Math.max(...ours.clusters.map(({ size }) => size)),
      theirs && Math.max(...theirs.sizes),
    ),
    both(
      'largest cluster of plain K-means',
      Math.max(...ours.vanillaSizes),
      theirs && Math.max(...theirs.vanilla.sizes),
    ),
  ]
}
