// Compares ELDR's simulator with an independent one in Python (python/simulator.py): same requests and times,
// jsq and band.
//
//   node bench/cross-check.mjs [--requests 20000] [--rate 600] [--seed 1] [--json FILE]
//     [--out docs/evidence/benchmarks-simulator.md] [--dist DIR]
//
// Exits with 1 if p50 TPOT or active experts differ by more than 1 %. Uses Python from bench/.venv or from
// the variable PYTHON (with numpy and safetensors). Run `npm run build` first.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { loadEldr } from './lib/eldr.mjs'
import { runProcess } from './lib/measure.mjs'
import { putSections } from './lib/page.mjs'
import { createPython } from './lib/python.mjs'
import {
  CALIBRATION,
  drawRequests,
  EVALUATION,
  loadEvaluation,
  loadProfile,
  loadSimulator,
  PROFILE,
  routingOf,
} from './lib/simulation.mjs'
import { header, table } from './lib/table.mjs'

const WORKERS = 16
const TAU = 0.1
const TITLE = 'Compared with an independent simulator in Python'
/** Compared measures, their names and allowed relative differences; TPOT is in milliseconds. */
const COMPARED = [
  { key: 'p50TpotMs', name: 'p50 TPOT, ms', most: 0.01 },
  { key: 'p99TpotMs', name: 'p99 TPOT, ms' },
  { key: 'meanTpotMs', name: 'mean TPOT, ms' },
  { key: 'activeExperts', name: 'active experts', most: 0.01 },
  { key: 'batch', name: 'batch' },
]

const root = fileURLToPath(new URL('..', import.meta.url))
const { values: options } = parseArgs({
  options: {
    requests: { type: 'string', default: '20000' },
    rate: { type: 'string', default: '600' },
    seed: { type: 'string', default: '1' },
    json: { type: 'string' },
    out: { type: 'string' },
    dist: { type: 'string', default: join(root, 'dist') },
  },
})
const [seed, requests, perSecond] = [options.seed, options.requests, options.rate].map(Number)
const dist = resolve(options.dist)

async function pythonSide() {
  const interpreter = process.env.PYTHON
  if (interpreter === undefined) return createPython()
  return {
    async run(script, args) {
      const { stdout } = await runProcess(interpreter, [
        fileURLToPath(new URL(`python/${script}`, import.meta.url)),
        ...args,
      ])
      return { result: JSON.parse(stdout) }
    },
  }
}

async function ourSide(artifactPath) {
  const product = await loadSimulator(dist)
  const [profile, artifact, { trace, replay }] = await Promise.all([
    loadProfile(product),
    product.readArtifact(artifactPath),
    loadEvaluation(product),
  ])
  const { featuresOf } = await routingOf(product, trace, artifact, false)
  await trace.close()
  const { arrivalsUs, rows } = drawRequests({ requests, perSecond, of: replay.rows, seed })
  return {
    arrivalsUs,
    requestOf: Array.from(rows, row => replay.requestOf[row]),
    run(policy) {
      const from = performance.now()
      const { result } = product.simulate({
        workload: { arrivals: { kind: 'recorded', timesUs: arrivalsUs }, rows },
        requests,
        seed,
        replay,
        profile,
        topology: { prefill: 0, decode: WORKERS, ranks: 1 },
        decodePolicy: product.createDecodePolicy(policy, { workers: WORKERS, artifact, tau: TAU }),
        featuresOf,
      })
      const { tpotMs, activeExperts, batch } = result
      const seconds = (performance.now() - from) / 1e3
      return {
        p50TpotMs: tpotMs.p50,
        p99TpotMs: tpotMs.p99,
        meanTpotMs: tpotMs.mean,
        activeExperts,
        batch,
        seconds,
      }
    },
  }
}

const python = await pythonSide()
if (python.missing) throw new Error(python.missing)
const eldr = await loadEldr(dist)
const scratch = mkdtempSync(join(tmpdir(), 'eldr-bench-'))
const data = []
try {
  const artifact = join(scratch, 'artifact.safetensors')
  await eldr.fit(join(root, CALIBRATION), { workers: WORKERS, pairs: 20_000, seed, out: artifact })
  const ours = await ourSide(artifact)
  const workload = join(scratch, 'requests.json')
  writeFileSync(
    workload,
    JSON.stringify({ arrivals_us: Array.from(ours.arrivalsUs), requests: ours.requestOf }),
  )
  for (const policy of ['jsq', 'band']) {
    process.stderr.write(`bench: ${policy}, ${requests} requests in Python … `)
    const files = [
      '--trace',
      join(root, EVALUATION),
      '--profile',
      join(root, 'profiles', `${PROFILE}.json`),
      '--artifact',
      artifact,
    ]
    const args = [
      workload,
      ...files,
      '--policy',
      policy,
      '--tau',
      TAU,
      '--workers',
      WORKERS,
      '--seed',
      seed,
      '--json',
    ]
    const { result } = await python.run('simulator.py', args.map(String))
    process.stderr.write(`${result.seconds.toFixed(1)} s\n`)
    data.push({ policy, ours: ours.run(policy), python: result })
  }
} finally {
  rmSync(scratch, { recursive: true, force: true })
}

const rows = []
const failed = []
for (const { policy, ours, python: theirs } of data) {
  for (const { key, name, most } of COMPARED) {
    const difference = theirs[key] / ours[key] - 1
    if (most !== undefined && !(Math.abs(difference) <= most))
      failed.push(`${policy}: ${name} differs by ${percent(difference)}`)
    rows.push([
      policy,
      name,
      ours[key].toFixed(3),
      theirs[key].toFixed(3),
      percent(difference),
      most === undefined ? '–' : `${100 * most} %`,
    ])
  }
}
const about = header(seed)
const slower = data.map(
  ({ policy, ours, python: theirs }) =>
    `${policy} ${theirs.seconds.toFixed(1)} s and ${ours.seconds.toFixed(2)} s`,
)
const notes = [
  about,
  `\`bench/python/simulator.py\` shares no code with ELDR: it reads the trace and artifact and computes signatures itself. ${requests.toLocaleString('en')} requests of the lab16-task evaluation trace at ${perSecond}/s on ${WORKERS} decode workers, profile ${PROFILE}, the same arrivals and rows on both sides. Ties of jsq are broken by different random generators. band (τ = ${TAU}) has no ties, so both should agree except for rounding and ELDR’s quantiles, which are within 0.1 %. The check fails if p50 TPOT or active experts differ by more than 1 %.`,
  `One run each, Python’s time and ELDR’s: ${slower.join('; ')}.`,
]
const { text, markdown } = table(['policy', '', 'ELDR', 'Python', 'difference', 'allowed'], rows)
console.log([`── ${TITLE}`, ...notes, '', text].join('\n'))
if (options.json)
  writeFileSync(options.json, `${JSON.stringify({ about, seed, requests, perSecond, data }, null, 2)}\n`)
if (options.out) putSections(options.out, 'cross-check', [`## ${TITLE}`, ...notes, markdown].join('\n\n'))
if (failed.length > 0) {
  console.error(failed.join('\n'))
  process.exitCode = 1
}

function percent(share) {
  return `${share < 0 ? '−' : '+'}${Math.abs(100 * share).toFixed(3)} %`
}
