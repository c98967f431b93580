// Cost of a routing decision by number of decode workers, for a small and a large model, and the memory of
// union's state.
//
//   node bench/decision-scale.mjs [--quick] [--seed 1] [--json FILE]
//     [--out docs/evidence/benchmarks-scale.md] [--dist DIR]
//
// A decision goes from raw counts to a worker, as in policy.mjs; dispatch and release are separate. All
// layers kept, one thread.
import { writeFileSync } from 'node:fs'
import { loadavg } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { runProcess } from './lib/measure.mjs'
import { header, mb, table, us } from './lib/table.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const { values: options } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    seed: { type: 'string', default: '1' },
    json: { type: 'string' },
    out: { type: 'string' },
    dist: { type: 'string', default: join(root, 'dist') },
  },
})
const seed = Number(options.seed)
const dist = resolve(options.dist)
// Readers need to know whether the machine had other work.
const about = `${header(seed)}, load average ${loadavg()[0].toFixed(1)} at the start`
console.log(about)

const SHAPES = [
  { name: 'lab16', layers: 16, experts: 128 },
  { name: 'large', layers: 58, experts: 256 },
]
const WORKERS = options.quick ? [4, 64] : [4, 16, 64, 256, 1024]
const POLICIES = ['jsq', 'band', 'union']

const script = fileURLToPath(new URL('lib/decision-scale-process.mjs', import.meta.url))

async function measure(policy, shape, workers) {
  const asked = { dist, policy, workers, seed, budgetMs: options.quick ? 200 : 2000, ...shape }
  return JSON.parse(
    (await runProcess(process.execPath, ['--expose-gc', script, JSON.stringify(asked)])).stdout,
  )
}

/** Exponent of K for the last step of a list; 1 is linear. */
const power = list =>
  Math.log(list.at(-1).pick / list.at(-2).pick) / Math.log(list.at(-1).workers / list.at(-2).workers)

const data = []
const parts = []
for (const shape of SHAPES) {
  const rows = []
  for (const workers of WORKERS) {
    const of = {}
    for (const policy of POLICIES) {
      of[policy] = await measure(policy, shape, workers)
      data.push({
        model: shape.name,
        layers: shape.layers,
        experts: shape.experts,
        workers,
        policy,
        ...of[policy],
      })
    }
    const { jsq, band, union } = of
    rows.push([
      workers,
      us(jsq.pick),
      us(band.pick),
      us(union.pick),
      us(union.dispatched),
      us(union.released),
      mb(union.stateBytes),
    ])
    console.error(`  ${shape.name}, ${workers} workers`)
  }
  const powers = POLICIES.map(
    policy =>
      `${policy} ${power(data.filter(one => one.model === shape.name && one.policy === policy)).toFixed(2)}`,
  )
  parts.push({
    title: `${shape.name}: ${shape.layers} layers × ${shape.experts} experts`,
    note: `Exponent of growth from ${WORKERS.at(-2)} to ${WORKERS.at(-1)} workers (1 is linear): ${powers.join(', ')}.`,
    ...table(['workers', 'jsq', 'band', 'union', 'union: dispatch', 'union: release', 'union: state'], rows),
  })
}
for (const { title, note, text } of parts) console.log(`\n── ${title}\n${note}\n\n${text}`)
if (options.json) writeFileSync(options.json, `${JSON.stringify({ about, seed, data })}\n`)
if (options.out) {
  const page = [
    '# Decisions by number of workers',
    'Written by `node bench/decision-scale.mjs --out`. Median time of a decision from raw counts, on one thread; union’s state is the memory by which the process grows. Signatures, centroids and counts are random, which does not affect the time.',
    about,
    ...parts.flatMap(({ title, note, markdown }) => [`## ${title}`, note, markdown]),
  ]
  writeFileSync(options.out, `${page.join('\n\n')}\n`)
}
