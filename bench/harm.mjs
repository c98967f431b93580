// What routing by experts can cost: every policy with artifacts that fit the traffic and with artifacts that
// do not, against jsq.
//
//   node bench/harm.mjs [--held-out] [--traces DIR] [--policies LIST] [--seeds 10] [--out FILE]
//
// --held-out takes the traffic from calibration traces (lib/held-out.mjs): constants are chosen with it.
// Without it, evaluation traces are used, which no constant was chosen on. --out writes JSON;
// docs/evidence/results/harm.json is the source of docs/evidence/harm.md. Needs `npm run build`.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { fit, FIT_DEFAULTS } from '../dist/fit/fit.js'
import { writeArtifact } from '../dist/fit/artifact-write.js'
import { createStages } from '../dist/fit/stages.js'
import { openStudy } from '../dist/sim/study-pool.js'
import { changeAgainst, over, sweep } from '../dist/sim/sweep.js'
import { WRONG_ARTIFACTS } from '../dist/sim/wrong-artifacts.js'
import { withTrace } from '../dist/trace/trace.js'
import { heldOut } from './lib/held-out.mjs'

const { values: options } = parseArgs({
  options: {
    traces: { type: 'string', default: new URL('../data', import.meta.url).pathname },
    'held-out': { type: 'boolean', default: false },
    policies: { type: 'string', default: 'band,eldr,union' },
    artifacts: { type: 'string', default: 'matched,foreign,shuffled,centroids,random' },
    rates: { type: 'string', default: '300,500,800' },
    requests: { type: 'string', default: '6000' },
    seeds: { type: 'string', default: '10' },
    out: { type: 'string' },
  },
})
const MIXES = ['task', 'lang']
const WORKERS = 16
/** The recorded steps of the shipped evaluation traces. */
const STEPS = 48
const FIT = { ...FIT_DEFAULTS, workers: WORKERS }
const [policies, artifacts] = [options.policies.split(','), options.artifacts.split(',')]
const [rates, seeds] = [options.rates.split(',').map(Number), Number(options.seeds)]
const base = {
  profile: 'h200-qwen3-30b-a3b',
  topology: `8P${WORKERS}D`,
  requests: Number(options.requests),
  arrivals: 'poisson',
  rows: 'passes',
}
/** One gateway, then four that see each other's requests after 20 ms or never. */
const PARTS = [
  { rates, artifacts },
  ...[20, null].map(viewAgeMs => ({
    rates: rates.slice(1, 2),
    artifacts: artifacts.slice(0, 2),
    gateways: { count: 4, viewAgeMs, anticipating: viewAgeMs !== null },
  })),
]
const folder = mkdtempSync(join(tmpdir(), 'eldr-harm-'))
try {
  const traffic = {}
  for (const mix of MIXES) traffic[mix] = await prepare(mix)
  const rows = []
  for (const part of PARTS) for (const mix of MIXES) rows.push(...(await study(mix, traffic, part)))
  const result = { ...base, heldOut: options['held-out'], seeds, rows }
  const short = (_, value) => (typeof value === 'number' ? Number(value.toPrecision(4)) : value)
  if (options.out) writeFileSync(options.out, `${JSON.stringify(result, short)}\n`)
  process.stdout.write(tableOf(rows))
} finally {
  rmSync(folder, { recursive: true })
}

/** Traffic and artifacts of one mix. */
async function prepare(mix) {
  const file = part => join(options.traces, `lab16-${mix}.${part}.safetensors`)
  let [calibration, evaluation] = [file('calibration'), file('evaluation')]
  if (options['held-out']) {
    const held = await heldOut(calibration, join(folder, `${mix}-half`), STEPS)
    ;[calibration, evaluation] = [join(folder, `${mix}-half`), join(folder, `${mix}-traffic`)]
    await held.write(evaluation)
  }
  const { artifact } = await withTrace(calibration, trace => fit(trace, FIT, createStages()))
  const made = { matched: join(folder, `${mix}-matched`) }
  await writeArtifact(made.matched, artifact)
  for (const [kind, make] of Object.entries(WRONG_ARTIFACTS)) {
    made[kind] = join(folder, `${mix}-${kind}`)
    await writeArtifact(made[kind], make(artifact, 1))
  }
  return { evaluation, made }
}

async function study(mix, traffic, { rates, artifacts, gateways }) {
  const { evaluation, made } = traffic[mix]
  const other = MIXES.find(name => name !== mix)
  const fileOf = kind => (kind === 'foreign' ? traffic[other].made.matched : made[kind])
  const cells = rates.flatMap(rate => [
    { variant: 'jsq', rate, setting: { artifact: made.matched, gateways } },
    ...artifacts.flatMap(kind =>
      policies.map(variant => ({
        variant,
        rate,
        kind,
        setting: { artifact: fileOf(kind), gateways },
      })),
    ),
  ])
  const pool = openStudy({ ...base, trace: evaluation, artifact: made.matched })
  const points = await sweep({
    cells,
    seeds: Array.from({ length: seeds }, (_, seed) => seed),
    pool,
  }).finally(pool.close)
  const [p50, p99] = [run => run.tpotMs.p50, run => run.tpotMs.p99]
  return points.flatMap(point => {
    const jsq = points.find(({ kind, rate }) => kind === undefined && rate === point.rate)
    if (point === jsq) return []
    return {
      mix,
      rate: point.rate,
      batch: over(jsq, run => run.batch).mean,
      artifact: point.kind,
      policy: point.variant,
      ...(gateways && { gateways }),
      p50: changeAgainst(jsq, point, p50),
      p99: changeAgainst(jsq, point, p99),
      imbalance: over(point, run => run.imbalance.inflight).mean,
    }
  })
}

function tableOf(rows) {
  const text = ({ mean }) => `${mean > 0 ? '+' : ''}${(100 * mean).toFixed(1)}`
  const lines = MIXES.flatMap(mix =>
    artifacts.map(kind => {
      const cells = policies.map(policy => {
        const own = rows.filter(
          row =>
            row.gateways === undefined && row.mix === mix && row.artifact === kind && row.policy === policy,
        )
        return own.map(({ p50, p99 }) => `${text(p50)}/${text(p99)}`.padEnd(12)).join(' ')
      })
      return `${mix} ${kind}`.padEnd(16) + cells.join(' | ')
    }),
  )
  const batches = MIXES.map(
    mix =>
      `${mix} ${[...new Set(rows.filter(row => row.mix === mix).map(({ batch }) => batch.toFixed(0)))].join(' ')}`,
  )
  return `${policies.join(' | ')}; batches ${batches.join(', ')}\n${lines.join('\n')}\n`
}
