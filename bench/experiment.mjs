// Are the intervals of `eldr experiment` right? Simulated experiments, measured and analysed by the same
// code: a policy against itself, whose intervals must contain 0 in 95 of 100 runs and which must rarely get a
// verdict, and union against jsq, whose difference they must find.
//
//   node bench/experiment.mjs [--null 400] [--real 100] [--slots 20] [--threads 2] [--out FILE.json]
//
// docs/evidence/experiment.md is made from docs/evidence/results/experiment.json: ten minutes on two cores.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { loadEldr } from './lib/eldr.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const { values: options } = parseArgs({
  options: {
    null: { type: 'string', default: '400' },
    real: { type: 'string', default: '100' },
    slots: { type: 'string', default: '20' },
    rate: { type: 'string', default: '100' },
    threads: { type: 'string', default: '2' },
    out: { type: 'string' },
    dist: { type: 'string', default: join(root, 'dist') },
  },
})
const load = path => import(pathToFileURL(join(options.dist, path)).href)
const { openPool } = await load('sim/parallel.js')
const { effectsOf, isFound, outcomeOf } = await load('sim/switchback-analysis.js')
const TRACE = 'lab16-task'

const folder = mkdtempSync(join(tmpdir(), 'eldr-experiment-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
const artifact = join(folder, 'artifact.safetensors')
const { fit } = await loadEldr(options.dist)
await fit(join(root, 'data', `${TRACE}.calibration.safetensors`), {
  workers: 4,
  pairs: 20_000,
  seed: 0,
  out: artifact,
})

const conditions = {
  trace: TRACE,
  topology: '2P4D',
  profile: 'h200-first',
  slotSeconds: 10,
  washoutSeconds: 3,
  slots: Number(options.slots),
  rate: Number(options.rate),
}
const { trace, rate, ...rest } = conditions
const pool = openPool({
  module: pathToFileURL(join(options.dist, 'sim', 'switchback.js')),
  data: { ...rest, trace: join(root, 'data', `${trace}.evaluation.safetensors`), artifact },
  threads: Number(options.threads),
})
const CASES = [
  { base: 'jsq', policy: 'jsq', arrivals: 'poisson', runs: Number(options.null) },
  { base: 'union', policy: 'union', arrivals: 'poisson', runs: Number(options.null) },
  { base: 'jsq', policy: 'jsq', arrivals: 'on_off', runs: Number(options.null) },
  { base: 'jsq', policy: 'union', arrivals: 'poisson', runs: Number(options.real) },
  { base: 'jsq', policy: 'union', arrivals: 'on_off', runs: Number(options.real) },
]
const mean = values => values.reduce((sum, value) => sum + value, 0) / values.length
const rounded = value => Number(value.toFixed(4))
const cases = []
for (const { base, policy, arrivals, runs } of CASES) {
  const jobs = Array.from({ length: runs }, (_, at) => ({
    policies: [base, policy],
    arrivals,
    rate,
    seed: at + 1,
  }))
  const other = base === policy ? `${policy}#2` : policy
  const all = await pool.run(jobs, (done, of) =>
    done % 20 === 0 ? process.stderr.write(`${base}, ${policy}, ${arrivals}: ${done}/${of}\n`) : undefined,
  )
  const effects = all.map(slots => effectsOf(slots, 2, base, other))
  const figures = effects[0].map(({ figure }, at) => {
    const own = effects.map(each => each[at])
    return {
      figure,
      covers: own.filter(effect => !isFound(effect)).length,
      lower: own.filter(({ high }) => high < 0).length,
      change: rounded(mean(own.map(({ change }) => change))),
      half: rounded(mean(own.map(({ low, high }) => (high - low) / 2))),
      lag1: rounded(mean(own.map(({ lag1 }) => lag1))),
    }
  })
  const verdicts = { better: 0, worse: 0, mixed: 0, undecided: 0, unmeasured: 0 }
  for (const each of effects) verdicts[outcomeOf(each)]++
  cases.push({ base, policy, arrivals, runs, verdicts, figures })
  console.log(`${base}, ${policy}, ${arrivals}, verdicts: ${JSON.stringify(verdicts)}`)
  for (const { figure, covers, lower, change, half } of figures)
    console.log(
      `${base}, ${policy}, ${arrivals}, ${figure}: 0 in ${covers} of ${runs}, lower in ${lower}; ${(100 * change).toFixed(2)} % ± ${(100 * half).toFixed(2)}`,
    )
  // After each case, so that a run that is stopped leaves what it has.
  if (options.out !== undefined)
    writeFileSync(options.out, `${JSON.stringify({ ...conditions, cases }, null, 2)}\n`)
}
await pool.close()
