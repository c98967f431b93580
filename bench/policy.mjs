// Time of a routing decision, from raw counts to a worker, compared with plain loops, and its growth with
// workers and experts.
//
//   node bench/policy.mjs [--quick] [--seed 1] [--json FILE] [--out docs/evidence/benchmarks-policy.md]
//     [--dist DIR]
//
// A decision from raw counts: signature (weights, norm), similarities to all centroids, band; for `union`
// also the prediction from neighbours and the cost on every worker. Dispatch and release are separate. All
// layers kept, 30 requests per worker.
import { writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { Worker } from 'node:worker_threads'
import { header, table, times, us } from './lib/table.mjs'

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
const about = header(seed)
console.log(about)

function measure(way, policy, shape, samples) {
  return new Promise((done, fail) => {
    const worker = new Worker(new URL('lib/decision-worker.mjs', import.meta.url), {
      workerData: { dist, way, policy, seed, samples, ...shape },
    })
    worker.on('message', done)
    worker.on('error', fail)
  })
}

const PAPER = { layers: 48, experts: 128, workers: 16 }
const many = options.quick ? 200 : 2000
const data = { against: [], growth: [] }
const against = []
for (const policy of ['band', 'union']) {
  const eldr = await measure('eldr', policy, PAPER, many)
  const plain = await measure('plain', policy, PAPER, options.quick ? 4 : 20)
  against.push([
    policy,
    us(eldr.pick),
    us(plain.pick),
    times(plain.pick, eldr.pick),
    us(eldr.dispatched),
    us(eldr.released),
  ])
  data.against.push({ policy, eldr, plain })
}
const growth = []
const shapes = [
  ...[8, 16, 64, 256].map(workers => ({ ...PAPER, workers })),
  ...[64, 128, 256, 512].map(experts => ({ ...PAPER, experts })),
].slice(0, options.quick ? 2 : 8)
for (const shape of shapes) {
  const [band, union] = [
    await measure('eldr', 'band', shape, many / 2),
    await measure('eldr', 'union', shape, many / 2),
  ]
  growth.push([
    shape.layers,
    shape.experts,
    shape.workers,
    us(band.pick),
    us(union.pick),
    us(union.dispatched),
    us(union.released),
  ])
  data.growth.push({ ...shape, band, union })
}
const parts = [
  {
    title: 'A decision at the paper’s size: 48 layers, 128 experts, 16 workers',
    note: 'Median of one decision from raw counts. The paper’s router needs 150 µs for the band alone (Table 1). Plain loops: straightforward code that reads all 1,000 calibration requests.',
    ...table(['policy', 'ELDR', 'plain loops', 'ratio', 'dispatch', 'release'], against),
  },
  {
    title: 'Growth with workers and experts',
    note: 'Each row has 1,000 calibration requests, or two per worker if that is more.',
    ...table(['layers', 'experts', 'workers', 'band', 'union', 'union: dispatch', 'union: release'], growth),
  },
]
for (const { title, note, text } of parts) console.log(`\n── ${title}\n${note}\n\n${text}`)
if (options.json) writeFileSync(options.json, `${JSON.stringify({ about, seed, ...data }, null, 2)}\n`)
if (options.out) {
  const page = [
    '# Benchmarks of routing decisions',
    'Written by `node bench/policy.mjs --out`.',
    about,
    ...parts.flatMap(({ title, note, markdown }) => [`## ${title}`, note, markdown]),
  ]
  writeFileSync(options.out, `${page.join('\n\n')}\n`)
}
