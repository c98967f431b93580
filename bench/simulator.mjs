// Speed of the simulator: by policy, compared with plain JavaScript, and by decode workers, model shape and
// requests.
//
//   node bench/simulator.mjs [--quick] [--only policies,plain] [--seed 1] [--repeat 5] [--json FILE]
//     [--out docs/evidence/benchmarks-simulator.md] [--dist DIR]
//
// Each figure is the median of several runs after a warm-up, in its own process, on one thread. Run `npm run
// build` first.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { loadavg, tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { loadEldr } from './lib/eldr.mjs'
import { median, runProcess } from './lib/measure.mjs'
import { putSections } from './lib/page.mjs'
import { CALIBRATION } from './lib/simulation.mjs'
import { header, table } from './lib/table.mjs'
import { decoders, requests, shapes } from './sections/simulator-growth.mjs'
import { plain, policies } from './sections/simulator-speed.mjs'

const SECTIONS = { policies, plain, decoders, shapes, requests }
const root = fileURLToPath(new URL('..', import.meta.url))
const { values: options } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    only: { type: 'string', default: Object.keys(SECTIONS).join(',') },
    seed: { type: 'string', default: '1' },
    repeat: { type: 'string' },
    json: { type: 'string' },
    out: { type: 'string' },
    dist: { type: 'string', default: join(root, 'dist') },
  },
})
const names = options.only.split(',')
const unknown = names.find(name => !(name in SECTIONS))
if (unknown !== undefined)
  throw new Error(`no section ${unknown}; there are ${Object.keys(SECTIONS).join(', ')}`)
const seed = Number(options.seed)
const repeat = Number(options.repeat ?? (options.quick ? 1 : 5))
const dist = resolve(options.dist)
const eldr = await loadEldr(dist)
const scratch = mkdtempSync(join(tmpdir(), 'eldr-bench-'))

async function inProcess(spec, flags = []) {
  const script = fileURLToPath(new URL('lib/simulation-process.mjs', import.meta.url))
  const args = ['--expose-gc', ...flags, script, JSON.stringify({ dist, seed, repeat, ...spec })]
  const { stdout, peakBytes } = await runProcess(process.execPath, args)
  return { ...JSON.parse(stdout), peakBytes }
}

/**
 * Median of one variant (lib/simulation-process.mjs): {wallMs, mTokens and mTokensOfCpu: millions per second,
 * batch, …}.
 */
async function measure(name, spec) {
  process.stderr.write(`bench: ${name} … `)
  const run = await inProcess(spec)
  const wallMs = median(run.times.map(time => time.wallMs))
  const mTokens = run.tokens / wallMs / 1e3
  const mTokensOfCpu = run.tokens / median(run.times.map(time => time.cpuMs)) / 1e3
  process.stderr.write(`${mTokens.toFixed(2)} M tokens/s, batch ${run.batch.toFixed(1)}\n`)
  return { ...run, wallMs, mTokens, mTokensOfCpu }
}

/** Bytes late in a run: {rss, heapUsed, arrayBuffers, peakBytes}. */
async function memory(name, spec, flags) {
  process.stderr.write(`bench: ${name}, memory … `)
  const held = await inProcess({ ...spec, memory: true }, flags)
  process.stderr.write(`${(held.rss / 1e6).toFixed(0)} MB resident\n`)
  return held
}

const artifacts = new Map()
/**
 * What a policy is given: an artifact of the calibration trace with one cluster per decode worker, made on
 * first use. A load balancer gets none.
 */
async function artifactFor(policy, workers) {
  return eldr.isLoadBalancer(policy) ? undefined : fitted(workers)
}

async function fitted(workers) {
  if (artifacts.has(workers)) return artifacts.get(workers)
  const out = join(scratch, `${workers}.safetensors`)
  if (workers === 16) await eldr.fit(join(root, CALIBRATION), { workers, pairs: 20_000, seed, out })
  else await eldr.refit(await fitted(16), { workers, out })
  artifacts.set(workers, out)
  return out
}

const about = [
  header(seed),
  `Medians of ${repeat} run${repeat === 1 ? '' : 's'} after 1 s of warm-up, each row in its own process. Load average at the start: ${loadavg()[0].toFixed(1)}.`,
  ...(options.quick ? ['Quick run: few requests, few repeats; not for quoting.'] : []),
]
console.log(about.join('\n'))
const markdown = [...about]
const data = {}
try {
  for (const name of names) {
    const section = await SECTIONS[name]({ measure, memory, artifactFor, quick: options.quick })
    const tables = section.tables.map(({ head, rows }) => table(head, rows))
    console.log(
      ['', `── ${section.title}`, ...section.notes, ...tables.map(({ text }) => `\n${text}`)].join('\n'),
    )
    markdown.push(`## ${section.title}`, ...section.notes, ...tables.map(each => each.markdown))
    data[name] = section.data
  }
} finally {
  rmSync(scratch, { recursive: true, force: true })
}
if (options.json)
  writeFileSync(options.json, `${JSON.stringify({ about, seed, quick: options.quick, ...data }, null, 2)}\n`)
if (options.out) putSections(options.out, 'simulator', markdown.join('\n\n'))
