// What learning the cost of a decode step is worth: union with learnt costs on clusters whose cost is not the
// built-in one, against union with the exact cost of every worker.
//
//   node bench/step-cost.mjs [--held-out] [--traces DIR] [--seeds 6] [--requests 9000] [--out FILE]
//
// --held-out takes the traffic from calibration traces (lib/held-out.mjs): constants are chosen with it.
// Without it, evaluation traces are used. Requests after the first 5,000 are measured. --out writes JSON;
// docs/evidence/results/step-cost.json is the source of a section of docs/evidence/drift.md. Needs
// `npm run build`.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { fit, FIT_DEFAULTS } from '../dist/fit/fit.js'
import { writeArtifact } from '../dist/fit/artifact-write.js'
import { createStages } from '../dist/fit/stages.js'
import { openStudy } from '../dist/sim/study-pool.js'
import { changeAgainst, over, sweep } from '../dist/sim/sweep.js'
import { withTrace } from '../dist/trace/trace.js'
import { heldOut } from './lib/held-out.mjs'

const { values: options } = parseArgs({
  options: {
    traces: { type: 'string', default: new URL('../data', import.meta.url).pathname },
    'held-out': { type: 'boolean', default: false },
    seeds: { type: 'string', default: '6' },
    requests: { type: 'string', default: '9000' },
    out: { type: 'string' },
  },
})
const MIXES = ['task', 'lang']
const WORKERS = 16
/** Rates for batches of about 10 to 45. */
const CLUSTERS = [
  { profile: 'h200-gpt-oss-120b', rates: [110, 160, 240] },
  { profile: 'h200-gemma-4-26b-a4b', rates: [350, 600, 900] },
  { profile: 'h200-qwen3-30b-a3b', rates: [300, 500, 800] },
]
/** The exact cost comes first: the others are compared with it. */
const VARIANTS = ['union@exact', 'union@learnt', 'union@default', 'jsq']
/** One decode worker takes so many times as long. */
const SLOWNESS = [1, 1.5]
const LEARNING = 5000
const COOL_DOWN = 500
/** The recorded steps of the shipped evaluation traces. */
const STEPS = 48
const requests = Number(options.requests)
const seeds = Array.from({ length: Number(options.seeds) }, (_, seed) => seed)
const base = {
  topology: `8P${WORKERS}D`,
  requests,
  arrivals: 'poisson',
  rows: 'passes',
  measured: { first: LEARNING, end: requests - COOL_DOWN },
}
const folder = mkdtempSync(join(tmpdir(), 'eldr-step-cost-'))
try {
  const rows = []
  for (const mix of MIXES) {
    const files = await prepare(mix)
    for (const cluster of CLUSTERS)
      for (const slowness of SLOWNESS) rows.push(...(await study(mix, files, cluster, slowness)))
  }
  const result = { ...base, seeds: seeds.length, heldOut: options['held-out'], rows }
  const short = (_, value) => (typeof value === 'number' ? Number(value.toPrecision(4)) : value)
  if (options.out) writeFileSync(options.out, `${JSON.stringify(result, short)}\n`)
} finally {
  rmSync(folder, { recursive: true })
}

/** Traffic and artifact of one mix. */
async function prepare(mix) {
  const file = part => join(options.traces, `lab16-${mix}.${part}.safetensors`)
  let [calibration, trace] = [file('calibration'), file('evaluation')]
  if (options['held-out']) {
    const half = join(folder, `${mix}-half`)
    const held = await heldOut(calibration, half, STEPS)
    ;[calibration, trace] = [half, join(folder, `${mix}-traffic`)]
    await held.write(trace)
  }
  const artifact = join(folder, `${mix}-artifact`)
  const fitted = await withTrace(calibration, opened =>
    fit(opened, { ...FIT_DEFAULTS, workers: WORKERS }, createStages()),
  )
  await writeArtifact(artifact, fitted.artifact)
  return { trace, artifact }
}

async function study(mix, files, { profile, rates }, slowness) {
  const slowDecoder = slowness === 1 ? undefined : { decoder: 3, factor: slowness }
  const pool = openStudy({ ...base, ...files, profile, slowDecoder })
  const cells = rates.flatMap(rate => VARIANTS.map(variant => ({ variant, rate, setting: {} })))
  const points = await sweep({ cells, seeds, pool }).finally(pool.close)
  return rates.map(rate => {
    const [exact, ...others] = points.filter(point => point.rate === rate)
    const row = {
      mix,
      profile,
      slowness,
      rate,
      batch: over(exact, run => run.batch).mean,
      p50Ms: over(exact, run => run.tpotMs.p50).mean,
      policies: others.map(point => ({
        policy: point.variant,
        p50: changeAgainst(exact, point, run => run.tpotMs.p50),
        p99: changeAgainst(exact, point, run => run.tpotMs.p99),
      })),
    }
    console.log(textOf(row))
    return row
  })
}

function textOf({ mix, profile, slowness, rate, batch, policies }) {
  const change = ({ mean }) => `${mean > 0 ? '+' : ''}${(100 * mean).toFixed(2)}`
  const cells = policies.map(({ policy, p50, p99 }) => `${policy} ${change(p50)}/${change(p99)}`)
  return `${mix} ${profile} ×${slowness} ${rate}/s batch ${batch.toFixed(0)}: ${cells.join(' | ')}`
}
