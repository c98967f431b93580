// Cost of a gateway: CPU time per request and token, rates, added time to the first token and memory,
// compared with vllm-router, bare proxies in Node and nginx in front of the same fake workers.
// bench/README.md explains the method.
//
//   bench/gateway/install.sh    # once: vllm-router and nginx, into bench/gateway/.venv
//   node bench/gateway/run.mjs [--quick] [--out docs/evidence/benchmarks-gateway.md] [--json FILE]
//     [--rows short,paced] [--columns eldr,undici]
//
// --against DIR adds the column `before`: another build, measured in the same rounds, with the 95 % interval
// of the ratio.
// --starts 10: processes of the same build differ by 3 %, so a ratio needs several starts of both builds.
// --repeat 3, --count-ms 2500, --warm-up-ms 1000 (of the client, before each round), --dist DIR (another
// build of the product), --priority 10 (above other programs; needs root)
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { loadEldr } from '../lib/eldr.mjs'
import { writeTrace } from '../lib/synth.mjs'
import { header } from '../lib/table.mjs'
import { measureDirect, startRouter, startWorkers } from './lib/cell.mjs'
import { pinning } from './lib/processes.mjs'
import { figuresOf, figureTable, notesOf, othersNote, shareTable } from './lib/report.mjs'
import { ratioTable } from './lib/ratio.mjs'
import { routers } from './lib/routers.mjs'
import { ROWS } from './lib/rows.mjs'

const root = fileURLToPath(new URL('../../', import.meta.url))
const { values: options } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    out: { type: 'string' },
    json: { type: 'string' },
    rows: { type: 'string' },
    columns: { type: 'string' },
    repeat: { type: 'string' },
    starts: { type: 'string', default: '1' },
    'count-ms': { type: 'string' },
    'warm-up-ms': { type: 'string', default: '1000' },
    priority: { type: 'string' },
    dist: { type: 'string', default: join(root, 'dist') },
    against: { type: 'string' },
  },
})
const SEED = 1
const dist = resolve(options.dist)
const repeat = Number(options.repeat ?? (options.quick ? 1 : 3))
const starts = Number(options.starts)
const times = {
  warmUpMs: Number(options['warm-up-ms']),
  countMs: Number(options['count-ms'] ?? (options.quick ? 1000 : 2500)),
  nice: options.priority === undefined ? undefined : `-${options.priority}`,
}

/** The named ones, or all. */
function chosen(names, all) {
  if (names === undefined) return all
  const wanted = names.split(',')
  const unknown = wanted.filter(name => !all.some(item => item.name === name))
  if (unknown.length > 0)
    throw new Error(`${unknown.join(', ')}: not one of ${all.map(({ name }) => name).join(', ')}`)
  return all.filter(({ name }) => wanted.includes(name))
}

const rows = chosen(options.rows, ROWS)
const known = Object.entries(routers({ dist, against: options.against && resolve(options.against) })).map(
  ([name, router]) => ({ name, ...router }),
)
const asked = chosen(options.columns, known)
/** Router left out → reason. */
const missing = new Map(asked.filter(({ missing }) => missing).map(({ name, missing }) => [name, missing]))
const progress = text => process.stderr.write(`bench: ${text}\n`)

const folder = mkdtempSync(join(tmpdir(), 'eldr-gateway-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))

/** An artifact of the paper's size for two decode workers, from a synthetic trace. */
async function makeArtifact() {
  const [trace, artifact] = [join(folder, 'trace.safetensors'), join(folder, 'artifact.safetensors')]
  writeTrace(trace, { requests: 1000, layers: 48, experts: 128, topK: 8, seed: SEED })
  await (await loadEldr(dist)).fit(trace, { workers: 2, pairs: 20_000, seed: SEED, out: artifact })
  return artifact
}

const needsArtifact = asked.some(({ name, decides }) => decides && !missing.has(name))
const artifact = needsArtifact ? await makeArtifact() : undefined

/** {name: router}, each started and warm; routers that fail are left out. */
async function startAll(row, workers) {
  const running = {}
  for (const router of asked) {
    if (missing.has(router.name)) continue
    progress(`${row.title}: ${router.label} warms up`)
    try {
      running[router.name] = await startRouter(row, router, workers, { nice: times.nice, artifact })
    } catch (error) {
      missing.set(router.name, error.message)
      progress(`${router.label} is left out: ${error.message}`)
    }
  }
  return running
}

/** One round of a row: the direct client, then each router. */
async function round(row, workers, running) {
  const measured = { direct: await measureDirect(row, workers, times) }
  if (asked.some(({ name, hops }) => hops === 1 && name in running)) {
    measured.directOneHop = await measureDirect(row, workers, { ...times, hops: 1 })
  }
  for (const name in running) measured[name] = await running[name].measure(times)
  return measured
}

const results = {}
for (const row of rows) {
  results[row.name] = []
  for (let start = 1; start <= starts; start++) {
    const workers = await startWorkers(row, times)
    const running = await startAll(row, workers)
    await workers.pace(row.gapMs ?? 0)
    for (let n = 1; n <= repeat; n++) {
      progress(`${row.title}: start ${start} of ${starts}, round ${n} of ${repeat}`)
      results[row.name].push({ start, ...(await round(row, workers, running)) })
    }
    await Promise.all([...Object.values(running), workers].map(({ stop }) => stop()))
  }
}

const columns = asked.filter(({ name }) => rows.some(row => results[row.name].some(round => round[name])))
const figures = figuresOf(rows, results, columns)
const rounds = `${starts === 1 ? '' : `${starts} starts with `}${repeat} rounds of ${times.countMs / 1e3} s`
const how = `medians of ${rounds}, a new router process per row and start, warmed up with 15,000 requests`
const about = [header(SEED), pinning, how, ...(times.nice === undefined ? [] : [`nice ${times.nice}`])].join(
  '; ',
)
const left = [...missing].map(([name, why]) => `Left out: ${name} (${why}).`)
const parts = [
  { title: 'Cost', ...figureTable(figures, columns) },
  { title: 'CPU use', ...shareTable(rows, results, columns) },
  ...(options.against === undefined
    ? []
    : [{ title: 'Compared with the build before', ...ratioTable(rows, results) }]),
]
const notes = [othersNote(results, availableParallelism()), ...left, ...notesOf(rows, results, columns)]
console.log(about)
for (const { title, text } of parts) console.log(`\n── ${title}\n\n${text}`)
console.log(`\n${notes.join('\n')}`)
if (options.json)
  writeFileSync(
    options.json,
    `${JSON.stringify({ about, missing: Object.fromEntries(missing), results }, null, 2)}\n`,
  )
if (options.out) {
  const page = [
    '# Benchmarks of the gateway',
    'Written by `node bench/gateway/run.mjs --out`. Two prefill and two decode workers, all fake. CPU times are those of the router only.',
    [
      'Ratios are medians over rounds; for costs lower is better, for rates higher.',
      'Spread: (max − min) ÷ median over the rounds of one router; a line shows its largest.',
      'Rates and times to the first token are valid only on an idle machine.',
    ].join(' '),
    about,
    ...parts.flatMap(({ title, markdown }) => [`## ${title}`, markdown]),
    '## Notes',
    notes.map(note => `- ${note}`).join('\n'),
  ]
  writeFileSync(options.out, `${page.join('\n\n')}\n`)
}
