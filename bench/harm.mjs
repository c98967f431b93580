// What routing by experts can cost: every policy with artifacts that fit the traffic and with artifacts that
// do not, against jsq.
//
//   node bench/harm.mjs [--held-out] [--traces DIR] [--policies LIST] [--one-gateway] [--seeds 10]
//                       [--out FILE]
//
// --held-out takes the traffic from calibration traces (lib/held-out.mjs): constants are chosen with it.
// Without it, evaluation traces are used, which no constant was chosen on. --out writes JSON;
// docs/evidence/results/harm.json is the source of docs/evidence/harm.md. Needs `npm run build`.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { BASELINE } from '../dist/sim/drift/bound.js'
import { runDrift } from '../dist/sim/drift/run-drift.js'
import { heldOut } from './lib/held-out.mjs'

const { values: options } = parseArgs({
  options: {
    traces: { type: 'string', default: new URL('../data', import.meta.url).pathname },
    'held-out': { type: 'boolean', default: false },
    policies: { type: 'string', default: 'band,eldr,union,union@learnt' },
    artifacts: { type: 'string', default: 'matched,foreign,shuffled,centroids,random' },
    rates: { type: 'string', default: '300,500,800' },
    light: { type: 'string', default: '100,150,200' },
    requests: { type: 'string', default: '6000' },
    seeds: { type: 'string', default: '10' },
    'one-gateway': { type: 'boolean', default: false },
    out: { type: 'string' },
  },
})
const MIXES = ['task', 'lang']
/** The recorded steps of the shipped evaluation traces. */
const STEPS = 48
const [policies, artifacts] = [options.policies.split(','), options.artifacts.split(',')]
const [rates, seeds] = [options.rates.split(',').map(Number), Number(options.seeds)]
const base = { profile: 'h200-qwen3-30b-a3b', topology: '8P16D', requests: Number(options.requests) }
/** One gateway, also under light load; then four that see each other's requests after 20 ms or never. */
const PARTS = [
  { rates, artifacts },
  { rates: options.light.split(',').map(Number), artifacts: artifacts.slice(0, 2) },
  ...(options['one-gateway'] ? [] : [20, null]).map(viewAgeMs => ({
    rates: rates.slice(1, 2),
    artifacts: artifacts.slice(0, 2),
    gateways: { count: 4, viewAgeMs, anticipating: viewAgeMs !== null },
  })),
]
const folder = mkdtempSync(join(tmpdir(), 'eldr-harm-'))
try {
  const traffics = await trafficsOf(options['held-out'])
  const rows = []
  for (const part of PARTS) rows.push(...(await study(part, traffics)))
  const result = { ...base, arrivals: 'poisson', heldOut: options['held-out'], seeds, rows }
  const short = (_, value) => (typeof value === 'number' ? Number(value.toPrecision(4)) : value)
  if (options.out) writeFileSync(options.out, `${JSON.stringify(result, short)}\n`)
  process.stdout.write(tableOf(rows))
} finally {
  rmSync(folder, { recursive: true })
}

async function trafficsOf(isHeldOut) {
  const files = {}
  for (const mix of MIXES) {
    const file = part => join(options.traces, `lab16-${mix}.${part}.safetensors`)
    files[mix] = { calibration: file('calibration'), evaluation: file('evaluation') }
    if (!isHeldOut) continue
    const [half, traffic] = [join(folder, `${mix}-half`), join(folder, `${mix}-traffic`)]
    await (await heldOut(files[mix].calibration, half, STEPS)).write(traffic)
    files[mix] = { calibration: half, evaluation: traffic }
  }
  return MIXES.map(mix => {
    const other = MIXES.find(name => name !== mix)
    return { name: mix, ...files[mix], foreign: files[other].calibration, domains: [] }
  })
}

/** Every artifact is a scenario: the traffic is that of the trace. */
async function study({ rates, artifacts, gateways }, traffics) {
  const scenarios = artifacts.map(name => ({ name, artifact: name === 'matched' ? 'own' : name }))
  const figures = await runDrift(
    {
      ...base,
      scenarios,
      traffics,
      policies: [BASELINE, ...policies],
      rates,
      seeds: Array.from({ length: seeds }, (_, seed) => seed),
      gateways,
    },
    folder,
  )
  const jsqBatch = ({ traffic, rate }) =>
    figures.find(one => one.policy === BASELINE && one.traffic === traffic && one.rate === rate).batch
  return figures
    .filter(({ policy }) => policy !== BASELINE)
    .map(one => ({
      mix: one.traffic,
      rate: one.rate,
      batch: jsqBatch(one),
      artifact: one.scenario,
      policy: one.policy,
      ...(gateways && { gateways }),
      p50: one.p50Change,
      p99: one.p99Change,
    }))
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
