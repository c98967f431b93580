// Cost of shadow policies: CPU time of the gateway per request with and without them, in the same rounds in
// front of the same fake workers, as a ratio with its 95 % interval.
//
//   node bench/shadow.mjs [--policy jsq] [--shadow union,eldr] [--rounds 4] [--starts 2] [--count-ms 8000]
//     [--out docs/evidence/results/shadow.json]
//
// The load is a closed loop of 64 streams of 16 tokens whose hand-offs have counts of the paper's size (48 ×
// 128). Longer streams cost the gateway more and shadow policies nothing, so this ratio is an upper bound.
// The result is a line of docs/evidence/experiment.md.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism, loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { startRouter, startWorkers } from './gateway/lib/cell.mjs'
import { ratioOver, ratioTable } from './gateway/lib/ratio.mjs'
import { ROWS } from './gateway/lib/rows.mjs'
import { loadEldr } from './lib/eldr.mjs'
import { median } from './lib/measure.mjs'
import { writeTrace } from './lib/synth.mjs'
import { header } from './lib/table.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const { values: options } = parseArgs({
  options: {
    policy: { type: 'string', default: 'jsq' },
    shadow: { type: 'string', default: 'union,eldr' },
    rounds: { type: 'string', default: '4' },
    starts: { type: 'string', default: '2' },
    out: { type: 'string' },
    'count-ms': { type: 'string', default: '8000' },
    dist: { type: 'string', default: join(root, 'dist') },
  },
})
const folder = mkdtempSync(join(tmpdir(), 'eldr-shadow-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
const artifact = join(folder, 'artifact.safetensors')
const trace = join(folder, 'trace.safetensors')
writeTrace(trace, { requests: 1000, layers: 48, experts: 128, topK: 8, seed: 1 })
await (await loadEldr(options.dist)).fit(trace, { workers: 2, pairs: 20_000, seed: 1, out: artifact })

const gateway = shadow => ({
  command: ({ port, prefill, decode }) => [
    process.execPath,
    [
      join(options.dist, 'cli', 'main.js'),
      'serve',
      '--port',
      String(port),
      '--policy',
      options.policy,
      '--artifact',
      artifact,
      ...prefill.flatMap(url => ['--prefill', url]),
      ...decode.flatMap(url => ['--decode', url]),
      ...(shadow.length === 0 ? [] : ['--shadow', ...shadow]),
    ],
  ],
})
const row = ROWS.find(({ name }) => name === 'counts')
// Shadow policies save up time while a gateway is idle: it is spent before the count begins.
const times = { warmUpMs: 6000, countMs: Number(options['count-ms']) }
const rounds = []
const seen = new Set()
for (let start = 0; start < Number(options.starts); start++) {
  const workers = await startWorkers(row, {})
  const [without, beside] = [
    await startRouter(row, gateway([]), workers, { artifact }),
    await startRouter(row, gateway(options.shadow.split(',')), workers, { artifact }),
  ]
  for (let round = 0; round < Number(options.rounds); round++) {
    // The one that goes first changes with every round.
    const first = round % 2 === 0 ? beside : without
    const one = await first.measure(times)
    const other = await (first === beside ? without : beside).measure(times)
    const [eldr, before] = first === beside ? [one, other] : [other, one]
    for (const { notes } of [eldr, before]) for (const note of notes) seen.add(note)
    rounds.push({ start, eldr, before })
    process.stderr.write(`start ${start + 1}, round ${round + 1}\n`)
  }
  await Promise.all([without.stop(), beside.stop(), workers.stop()])
}
const cpu = row.figures.find(({ isCost }) => isCost)
const figuresOf = runs => ({
  cpuUs: Math.round(median(runs.map(cpu.of))),
  requestsPerSecond: Math.round(median(runs.map(({ requests, wallS }) => requests / wallS))),
})
const without = figuresOf(rounds.map(({ before }) => before))
const beside = figuresOf(rounds.map(({ eldr }) => eldr))
console.log(header(1))
console.log(`Policy ${options.policy}, shadow policies ${options.shadow}.\n`)
for (const [name, { cpuUs, requestsPerSecond }] of Object.entries({
  without,
  'with shadow policies': beside,
}))
  console.log(`${name}: ${cpuUs} CPU µs per request at ${requestsPerSecond} requests/s`)
console.log(`\n${ratioTable([{ ...row, figures: [cpu] }], { [row.name]: rounds }).text}`)
for (const note of seen) console.log(`Note: ${note}.`)
if (options.out !== undefined) {
  const { mean, low, high } = ratioOver(rounds, cpu)
  const digits = value => Number(value.toFixed(4))
  const result = {
    at: new Date().toISOString().slice(0, 10),
    cores: availableParallelism(),
    /** Of 15 minutes, at the end: how busy the machine was. */
    loadAverage: digits(loadavg()[2]),
    policy: options.policy,
    shadow: options.shadow.split(','),
    starts: Number(options.starts),
    rounds: rounds.length,
    without,
    beside,
    ratio: digits(mean),
    low: digits(low),
    high: digits(high),
  }
  writeFileSync(options.out, `${JSON.stringify(result, null, 2)}\n`)
}
