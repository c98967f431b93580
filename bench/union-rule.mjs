// Effect of the two constants of union, on calibration requests only: expected arrivals and tail (weight of
// slow workers).
//
//   node bench/union-rule.mjs [--traces DIR] [--out docs/evidence/benchmarks-union.md] [--seeds 3] [--json]
//
// Half of a calibration trace is fitted; the other half is the traffic (lib/held-out.mjs). Evaluation traces
// are not used. Needs `npm run build`.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { stepParts } from '../dist/cost/profile.js'
import { loadProfile } from '../dist/cost/profile-file.js'
import { fit, FIT_DEFAULTS } from '../dist/fit/fit.js'
import { createStages } from '../dist/fit/stages.js'
import { jsq } from '../dist/policy/jsq.js'
import { roundRobin } from '../dist/policy/round-robin.js'
import { predictorOf } from '../dist/policy/create-policy.js'
import { union } from '../dist/policy/union.js'
import { createSigner } from '../dist/signature/signer.js'
import { cachedPredictor } from '../dist/sim/foresight.js'
import { replayOf } from '../dist/sim/replay.js'
import { simulate } from '../dist/sim/simulate.js'
import { parseTopology } from '../dist/sim/topology.js'
import { openTrace } from '../dist/trace/trace.js'
import { heldOut } from './lib/held-out.mjs'

const { values: options } = parseArgs({
  options: {
    traces: { type: 'string', default: new URL('../data', import.meta.url).pathname },
    out: { type: 'string' },
    seeds: { type: 'string', default: '3' },
    json: { type: 'boolean', default: false },
  },
})
const WORKERS = 16
const STEPS = 96
const REQUESTS = 3000
/** Requests per second for mean batches of about 6, 13, 24, 40 and 50 under jsq. */
const RATES = [118, 185, 265, 385, 465]
const RULES = [
  [0, 0],
  [0, 0.5],
  [8, 0],
  [8, 0.5],
  [18, 1],
]
const folder = mkdtempSync(join(tmpdir(), 'eldr-union-rule-'))
const profile = await loadProfile('h200-first')
const results = []
try {
  for (const name of ['task', 'lang']) results.push(...(await study(name)))
} finally {
  rmSync(folder, { recursive: true })
}
const page = pageOf(results)
if (options.out) writeFileSync(options.out, page)
process.stdout.write(options.json ? `${JSON.stringify(results, null, 2)}\n` : page)

async function study(name) {
  const path = join(folder, name)
  const { shape, ids, held, countsOf } = await heldOut(
    join(options.traces, `lab16-${name}.calibration.safetensors`),
    path,
    STEPS,
  )
  const { layers, experts, topK } = shape
  const half = await openTrace(path)
  const { artifact } = await fit(half, { ...FIT_DEFAULTS, workers: WORKERS }, createStages())
  await half.close()
  const replay = replayOf({
    layers,
    experts,
    topK,
    ids,
    maxSteps: STEPS,
    steps: new Uint16Array(held).fill(STEPS),
  })
  const signer = createSigner(artifact.primary.model)
  const features = Array.from({ length: held }, (_, at) => {
    const counts = countsOf(at)
    return { counts, signature: signer.sign(counts) }
  })
  const predictor = cachedPredictor(predictorOf({ artifact }))
  const run = (decodePolicy, rate, seed) =>
    simulate({
      workload: { arrivals: { kind: 'poisson', perSecond: rate }, rows: 'replacement' },
      requests: REQUESTS,
      seed,
      replay,
      profile,
      topology: parseTopology(`${WORKERS}D`),
      decodePolicy,
      featuresOf: r => features[r],
    }).result
  const seeds = Array.from({ length: Number(options.seeds) }, (_, seed) => seed)
  const mean = (policy, rate) => {
    const runs = seeds.map(seed => run(policy(), rate, seed))
    const of = value => runs.reduce((sum, one) => sum + value(one), 0) / runs.length
    return { p50: of(one => one.tpotMs.p50), p99: of(one => one.tpotMs.p99), batch: of(one => one.batch) }
  }
  return RATES.flatMap(rate => {
    const balancers = [mean(jsq, rate), mean(roundRobin, rate)]
    const base = {
      p50: Math.min(...balancers.map(({ p50 }) => p50)),
      p99: Math.min(...balancers.map(({ p99 }) => p99)),
    }
    return RULES.map(([expectedArrivals, tail]) => {
      const { p50, p99 } = mean(
        () =>
          union({
            workers: WORKERS,
            layers,
            predictor,
            cost: stepParts(profile),
            expectedArrivals: expectedArrivals,
            tail,
          }),
        rate,
      )
      process.stderr.write(`${name} ${rate}/s, expectedArrivals ${expectedArrivals}, tail ${tail}\n`)
      return {
        workload: name,
        batch: balancers[0].batch,
        expectedArrivals,
        tail,
        p50: 100 * (p50 / base.p50 - 1),
        p99: 100 * (p99 / base.p99 - 1),
      }
    })
  })
}

function pageOf(list) {
  const text = value => `${value > 0 ? '+' : '−'}${Math.abs(value).toFixed(1)}`
  const lines = [...new Set(list.map(({ workload, batch }) => `${workload}|${batch}`))].map(key => {
    const cells = list.filter(({ workload, batch }) => `${workload}|${batch}` === key)
    return `| ${cells[0].workload}, batch ${cells[0].batch.toFixed(0)} | ${cells.map(({ p50, p99 }) => `${text(p50)} / ${text(p99)}`).join(' | ')} |`
  })
  const heads = RULES.map(([expectedArrivals, tail]) =>
    expectedArrivals === 8 && tail === 0.5
      ? `**${expectedArrivals}, ${tail}**`
      : `${expectedArrivals}, ${tail}`,
  )
  return `# The two constants of union\n\nWritten by \`node bench/union-rule.mjs --out\`. The constants are expected arrivals (future requests that also pay for the experts a request adds) and tail (the weight of slow workers). Half of each lab16 calibration trace is used for the fit, the other half as traffic, with steps drawn from the recorded expert shares. Evaluation traces are not used. Conditions: ${WORKERS} decode workers, profile h200-first, ${REQUESTS} requests, ${options.seeds} seeds, rows with replacement. Cells: change of TPOT p50 / p99 in percent against the better of jsq and round_robin. Columns: expected arrivals, tail; the default is bold.\n\n| load | ${heads.join(' | ')} |\n|---|${RULES.map(() => '---:').join('|')}|\n${lines.join('\n')}\n`
}
