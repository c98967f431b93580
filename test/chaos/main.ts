/**
 * A cluster of real processes under an adversary with a seed, and a checker apart from it.
 *
 *   npm run test:chaos -- --minutes 3 [--seed N] [--json] [--loopback] [--complete] [--only 0:3,0:7]
 *                         [--plant BUG] [--shrink-minutes 10]
 *
 * On failure it reruns parts of the schedule and prints the shortest one that still fails. `--only` repeats
 * it. Needs dist/ (npm run build).
 */
import { parseArgs } from 'node:util'
import { whyLoopback } from './cluster/machines.ts'
import { knownAnswers } from './known-answers.ts'
import { type Plant, PLANTS } from './load/planted-proxy.ts'
import { summaryOf, tableOf } from './report.ts'
import { run, type RunOptions } from './run.ts'
import { reproduction } from './reproduce.ts'

/** At least this share of the streams must be hit after their first token. */
const MIN_HIT_SHARE = 0.2

const { values: options } = parseArgs({
  options: {
    minutes: { type: 'string', default: '3' },
    seed: { type: 'string' },
    json: { type: 'boolean', default: false },
    loopback: { type: 'boolean', default: false },
    complete: { type: 'boolean', default: false },
    only: { type: 'string' },
    plant: { type: 'string' },
    'shrink-minutes': { type: 'string', default: '10' },
  },
})

function numberOf(name: 'minutes' | 'seed' | 'shrink-minutes', fallback: number): number {
  const value = Number(options[name] ?? fallback)
  if (!(value >= 0)) throw new Error(`--${name} ${options[name]}: expected a number from 0 on`)
  return value
}

const say = (text: string) => void process.stderr.write(`${text}\n`)
const seed = numberOf('seed', Date.now() % 1_000_000)
const plant = options.plant as Plant | undefined
if (plant !== undefined && !PLANTS.includes(plant))
  throw new Error(`--plant: expected one of ${PLANTS.join(', ')}`)
const why = options.loopback ? '--loopback' : whyLoopback()
if (why !== undefined) say(`all on this machine, without faults of the network: ${why}`)
say(`npm run test:chaos -- --minutes ${options.minutes} --seed ${seed}`)
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => process.exit(1))

const only = options.only === undefined ? undefined : new Set(options.only.split(',').filter(Boolean))
const plan: RunOptions = {
  seed,
  totalMs: 60_000 * numberOf('minutes', 3),
  known: await knownAnswers(),
  isLoopback: why !== undefined,
  complete: options.complete,
  plant,
  only,
  say,
}
const result = await run(plan)
const { checker } = result
// A few steps prove nothing about the share.
if (only === undefined && checker.violations.length === 0) checker.finish(MIN_HIT_SHARE)
for (const { what, detail } of checker.violations.slice(0, 20)) say(`FAIL  ${what}: ${detail}`)
const isReproducible = checker.violations.length > 0 && only === undefined
const found = isReproducible
  ? await reproduction(plan, result, 60_000 * numberOf('shrink-minutes', 10))
  : undefined
const summary = summaryOf(result, {
  seed,
  machines: plan.isLoopback ? 'loopback' : 'namespaces',
  reproduction: found,
})
process.stdout.write(options.json ? `${JSON.stringify(summary, null, 2)}\n` : `${tableOf(summary)}\n`)
if (found !== undefined) process.stdout.write(`${found}\n`)
process.exit(summary.passed ? 0 : 1)
