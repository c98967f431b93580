// Cost and throughput of several processes: a gateway in one process, with two and four relays and an owner,
// and vllm-router, in front of the same fake workers on all cores; and how long a relay waits for the owner.
//
//   bench/gateway/install.sh                                                # once, for vllm-router
//   node bench/processes.mjs [--quick] [--out docs/evidence/benchmarks-processes.md] [--relays 1,2] [--repeat 3] [--count-ms 2500] [--dist DIR]
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { measureDirect, startRouter, startWorkers } from './gateway/lib/cell.mjs'
import { othersNote } from './gateway/lib/report.mjs'
import { routers } from './gateway/lib/routers.mjs'
import { ROWS } from './gateway/lib/rows.mjs'
import { keepAwake } from './lib/awake.mjs'
import { loadEldr } from './lib/eldr.mjs'
import { median } from './lib/measure.mjs'
import { ownerRoundTrip } from './lib/owner-round-trip.mjs'
import { writeTrace } from './lib/synth.mjs'
import { header, table } from './lib/table.mjs'

const root = fileURLToPath(new URL('../', import.meta.url))
const { values: options } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    out: { type: 'string' },
    relays: { type: 'string', default: '1,2' },
    repeat: { type: 'string' },
    'count-ms': { type: 'string' },
    dist: { type: 'string', default: join(root, 'dist') },
  },
})
const SEED = 1
const dist = resolve(options.dist)
const cores = availableParallelism()
const repeat = Number(options.repeat ?? (options.quick ? 1 : 3))
const times = {
  warmUpMs: options.quick ? 300 : 1000,
  countMs: Number(options['count-ms'] ?? (options.quick ? 800 : 2500)),
}
const rows = ROWS.filter(({ name }) => ['short', 'counts', 'fast', 'first-token'].includes(name))
const progress = text => process.stderr.write(`bench: ${text}\n`)

/** All routers may use all cores. */
const everywhere = `0-${cores - 1}`
const all = routers({ dist })
const columns = [
  ...options.relays.split(',').map(relays => ({
    ...all['eldr-quiet'],
    name: `eldr-${relays}`,
    label: relays === '1' ? 'eldr, one process' : `eldr, ${relays} relays`,
    cores: everywhere,
    command: async told => {
      const [program, args] = await all['eldr-quiet'].command(told)
      return [program, [...args, '--processes', relays]]
    },
  })),
  {
    ...all['vllm-router'],
    name: 'vllm-router',
    cores: everywhere,
    // Sets its number of Tokio threads.
    command: async told => {
      const [program, args] = await all['vllm-router'].command(told)
      return ['env', ['TOKIO_WORKER_THREADS=2', program, ...args]]
    },
  },
]
const missing = columns.filter(column => column.missing !== undefined)
const present = columns.filter(column => column.missing === undefined)

const folder = mkdtempSync(join(tmpdir(), 'eldr-processes-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
const [trace, artifact] = [join(folder, 'trace.safetensors'), join(folder, 'artifact.safetensors')]
writeTrace(trace, { requests: 1000, layers: 48, experts: 128, topK: 8, seed: SEED })
await (await loadEldr(dist)).fit(trace, { workers: 2, pairs: 20_000, seed: SEED, out: artifact })

const results = {}
for (const row of rows) {
  const workers = await startWorkers(row, times)
  const running = {}
  for (const column of present) {
    progress(`${row.title}: ${column.label} warms up`)
    running[column.name] = await startRouter(row, column, workers, { artifact })
  }
  await workers.pace(row.gapMs ?? 0)
  results[row.name] = []
  for (let n = 0; n < repeat; n++) {
    progress(`${row.title}: round ${n + 1} of ${repeat}`)
    const measured = { direct: await measureDirect(row, workers, times) }
    for (const name in running) measured[name] = await running[name].measure(times)
    results[row.name].push(measured)
  }
  await Promise.all([...Object.values(running), workers].map(({ stop }) => stop()))
}

const show = (row, figure, name) => {
  const values = results[row.name].map(round => figure.of(round[name], round.direct)).filter(Number.isFinite)
  return values.length === 0 ? '–' : figure.show(median(values))
}
const lines = rows.flatMap(row =>
  row.figures.map((figure, n) => [
    n === 0 ? row.title : '',
    figure.name,
    ...present.map(({ name }) => show(row, figure, name)),
  ]),
)
const figures = table(['', 'figure', ...present.map(({ label }) => label)], lines)

const trips = []
for (const policy of ['jsq', 'union']) {
  progress(`requests to an owner with policy ${policy}`)
  const questions = options.quick ? 2_000 : 20_000
  const idle = await ownerRoundTrip(dist, { policy, questions })
  const end = keepAwake()
  const awake = end && (await ownerRoundTrip(dist, { policy, questions }))
  end?.()
  for (const question in idle) {
    const { asked, here } = idle[question]
    const busy = awake?.[question].asked.p50
    const figures = [here.p50, asked.p50, asked.p50 - here.p50, busy, busy && busy - awake[question].here.p50]
    trips.push([policy, question, ...figures.map(us => us?.toFixed(1) ?? '–')])
  }
}
const questions = table(
  ['policy', 'request', 'local decision, µs', 'owner', 'round trip', 'owner, cores awake', 'round trip'],
  trips,
)
const notes = [
  othersNote(results, cores),
  ...missing.map(column => `Left out: ${column.name} (${column.missing}).`),
  ...new Set(
    rows.flatMap(row =>
      results[row.name].flatMap(round =>
        present.flatMap(({ name, label }) =>
          (round[name].notes ?? []).map(note => `${label}, ${row.title}: ${note}`),
        ),
      ),
    ),
  ),
]
const about = `${header(SEED)}; routers on all ${cores} cores, workers and client on all but the first; medians of ${repeat} rounds of ${times.countMs / 1e3} s`
console.log(`${about}\n\n${figures.text}\n\n${questions.text}\n\n${notes.join('\n')}`)
if (options.out) {
  const page = [
    '# Benchmarks of several processes',
    'Written by `node bench/processes.mjs --out`. CPU times are sums over all processes of a router. A relay sends the owner three requests: `enter` for admission, `prefill` for a prefill worker, and `decode` for a decode worker, with 16 KiB of counts.',
    about,
    '## Cost and throughput',
    figures.markdown,
    '## Latency of the owner',
    'Medians of sequential requests to the owner. “Round trip” is the time beyond the decision itself. On an idle machine each request wakes two sleeping cores; “cores awake”: programs of lowest priority keep them awake.',
    questions.markdown,
    '## Notes',
    notes.map(note => `- ${note}`).join('\n'),
  ]
  writeFileSync(options.out, `${page.join('\n\n')}\n`)
}
