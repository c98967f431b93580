// Effect of the two constants of union, on calibration requests only: expected arrivals and tail (weight of
// slow workers).
//
//   node bench/union-rule.mjs [--traces DIR] [--out docs/evidence/benchmarks-union.md] [--seeds 3] [--json]
//
// Half of a calibration trace is fitted; the other half is the traffic. A calibration trace has the number of
// activations of each expert but not their steps, so steps are drawn: top_k experts per layer without
// replacement, with weights that are adjusted until each expert is active as often as recorded. Evaluation
// traces are not used. Needs `npm run build`.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { stepParts } from '../dist/cost/profile.js'
import { loadProfile } from '../dist/cost/profile-file.js'
import { fit } from '../dist/fit/fit.js'
import { createStages } from '../dist/fit/stages.js'
import { createRandom } from '../dist/math/random.js'
import { jsq } from '../dist/policy/jsq.js'
import { roundRobin } from '../dist/policy/round-robin.js'
import { predictorOf } from '../dist/policy/create-policy.js'
import { union } from '../dist/policy/union.js'
import { createSigner } from '../dist/signature/signer.js'
import { cachedPredictor } from '../dist/sim/foresight.js'
import { replayOf } from '../dist/sim/replay.js'
import { simulate } from '../dist/sim/simulate.js'
import { parseTopology } from '../dist/sim/topology.js'
import { writeSafetensors } from '../dist/trace/safetensors-write.js'
import { openTrace } from '../dist/trace/trace.js'

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
  const trace = await openTrace(join(options.traces, `lab16-${name}.calibration.safetensors`))
  const { layers, experts, topK, requests } = trace
  const cells = layers * experts
  const [prefill, decode, steps] = [
    await trace.prefillCounts(),
    await trace.decodeCounts(),
    await trace.decodeSteps(),
  ]
  const random = createRandom(5)
  const order = Array.from({ length: requests }, (_, r) => r)
  for (let i = requests - 1; i > 0; i--)
    [order[i], order[random.below(i + 1)]] = [order[random.below(i + 1)], order[i]]
  const [known, held] = [order.slice(0, requests / 2), order.slice(requests / 2)]
  const rowsOf = (values, rows) =>
    Uint16Array.from(rows.flatMap(r => Array.from(values.subarray(r * cells, (r + 1) * cells))))
  const path = join(folder, name)
  await writeSafetensors(path, {
    metadata: {
      format: 'eldr.trace.v1',
      model: trace.model,
      layers: `${layers}`,
      experts: `${experts}`,
      top_k: `${topK}`,
    },
    tensors: {
      prefill_counts: { dtype: 'U16', shape: [known.length, layers, experts], data: rowsOf(prefill, known) },
      decode_counts: { dtype: 'U16', shape: [known.length, layers, experts], data: rowsOf(decode, known) },
      decode_steps: { dtype: 'U16', shape: [known.length], data: Uint16Array.from(known, r => steps[r]) },
    },
  })
  await trace.close()
  const half = await openTrace(path)
  const { artifact } = await fit(
    half,
    {
      workers: WORKERS,
      transform: 'auto',
      layers: 'auto',
      balance: 'exact',
      restarts: 3,
      pairs: 20_000,
      seed: 0,
      batch: 32,
    },
    createStages(),
  )
  await half.close()
  const ids = new Uint8Array(held.length * STEPS * layers * topK)
  held.forEach((r, at) =>
    drawSteps(
      decode.subarray(r * cells, (r + 1) * cells),
      steps[r],
      { layers, experts, topK },
      random,
      ids.subarray(at * STEPS * layers * topK),
    ),
  )
  const replay = replayOf({
    layers,
    experts,
    topK,
    ids,
    maxSteps: STEPS,
    steps: new Uint16Array(held.length).fill(STEPS),
  })
  const signer = createSigner(artifact.primary.model)
  const features = held.map(r => {
    const counts = prefill.subarray(r * cells, (r + 1) * cells)
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

/** Steps of one request: Gumbel draws with weights, adjusted a few times towards the recorded shares. */
function drawSteps(counts, of, { layers, experts, topK }, random, out) {
  const shares = Float64Array.from(counts, count => count / of)
  const weights = shares.map(p =>
    Math.log(Math.min(0.995, Math.max(5e-4, p)) / (1 - Math.min(0.995, Math.max(5e-4, p)))),
  )
  for (let round = 0; round < 5; round++) {
    const drawn = new Float64Array(counts.length)
    const steps = round === 4 ? STEPS : 32
    for (let step = 0; step < steps; step++) {
      for (let layer = 0; layer < layers; layer++) {
        const chosen = highest(weights, layer * experts, experts, topK, random)
        chosen.forEach((expert, k) => {
          drawn[layer * experts + expert] += 1 / steps
          if (round === 4) out[(step * layers + layer) * topK + k] = expert
        })
      }
    }
    const odds = p => Math.log((p + 0.01) / (1 - p + 0.01))
    for (let c = 0; c < weights.length; c++) weights[c] += 0.8 * (odds(shares[c]) - odds(drawn[c]))
  }
}

function highest(weights, from, experts, topK, random) {
  const keys = Array.from({ length: experts }, (_, e) => [
    weights[from + e] - Math.log(-Math.log(random.uniform() || 1e-12)),
    e,
  ])
  return keys
    .sort((a, b) => b[0] - a[0])
    .slice(0, topK)
    .map(([, expert]) => expert)
    .sort((a, b) => a - b)
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
