// Section 2: the paper's size (Qwen3-30B-A3B: 48 layers, 128 experts, top-8; 1,000 calibration requests), and
// refits of its artifact for other numbers of workers, each as a whole process.
import { join } from 'node:path'
import { stageMs } from '../lib/eldr.mjs'
import { medianRun } from '../lib/measure.mjs'
import { numpyFit } from '../lib/numpy-fit.mjs'
import { writeTrace } from '../lib/synth.mjs'
import { mb, ms, times } from '../lib/table.mjs'

const PAIRS = 20_000

export async function paperSize({ eldr, python, scratch, seed, quick }) {
  const trace = join(scratch, 'paper-size.safetensors')
  writeTrace(trace, { requests: 1000, layers: 48, experts: 128, topK: 8, domains: 4, seed, gates: true })
  const [artifact, out] = [join(scratch, 'artifact.safetensors'), join(scratch, 'out.safetensors')]
  const repeat = quick ? 1 : 5
  const measure = run => medianRun(repeat, run, quick ? 0 : 1)

  const fits = [
    {
      what: 'fit',
      workers: 16,
      run: await measure(() => eldr.fit(trace, { workers: 16, pairs: PAIRS, seed, out: artifact })),
    },
  ]
  for (const workers of [8, 24, 64]) {
    fits.push({
      what: 'fit',
      workers,
      run: await measure(() => eldr.fit(trace, { workers, pairs: PAIRS, seed, out })),
    })
    fits.push({ what: 'refit', workers, run: await measure(() => eldr.refit(artifact, { workers, out })) })
  }
  const theirs =
    python.run &&
    (await numpyFit(python, trace, { workers: 16, pairs: PAIRS, seed, repeat: quick ? 1 : 3, out }))

  return {
    title: 'The paper’s size: 1,000 requests, 48 layers, 128 experts',
    notes: [
      `Synthetic trace with gate scores (bench/lib/synth.mjs), ${PAIRS.toLocaleString('en')} pairs. Whole process including start; median of ${repeat}. A refit uses the artifact of the fit for 16 workers. The paper’s refit (clustering only) takes under 10 s (§4.1).`,
      ...(theirs ? [`NumPy/SciPy: median of ${theirs.runs.length}, BLAS threads: ${theirs.threads}.`] : []),
    ],
    tables: [
      {
        head: ['what', 'workers', 'ELDR', 'of which clustering', 'peak memory', 'NumPy/SciPy', 'ratio'],
        rows: fits.map(({ what, workers, run }, at) => {
          const other = at === 0 ? theirs?.wallMs : undefined
          return [
            what,
            workers,
            ms(run.wallMs),
            ms(stageMs(run, ['clusters'])),
            mb(run.peakBytes),
            ms(other),
            times(other, run.wallMs),
          ]
        }),
      },
    ],
    data: {
      ours: fits.map(({ what, workers, run }) => ({
        what,
        workers,
        wallMs: run.wallMs,
        peakBytes: run.peakBytes,
        stages: run.result.stages,
      })),
      theirs: theirs && { wallMs: theirs.wallMs, threads: theirs.threads, stages: theirs.result.stages },
    },
  }
}
