// Writes docs/evidence/tiny.md from data/tiny6-prompts.*: fitted on the calibration prompts,
// simulated on the held-out ones. The results are the same on every machine. Run `npm run build` first.
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { openSafetensors } from '../dist/trace/safetensors-file.js'
import { writeSafetensors } from '../dist/trace/safetensors-write.js'
import { withTrace } from '../dist/trace/trace.js'

const root = fileURLToPath(new URL('..', import.meta.url))
const page = join(root, 'docs', 'evidence', 'tiny.md')
const out = mkdtempSync(join(tmpdir(), 'eldr-tiny-'))
const MIXES = {
  task: ['code', 'math', 'medical', 'legal'],
  languages: ['en', 'zh', 'ru', 'es', 'de', 'ja'],
  all: undefined,
}
const [WORKERS, RATES, BALANCERS] = [
  [4, 8],
  [5, 9, 15],
  ['random', 'round_robin', 'jsq', 'power_of_two'],
]
const SEEDS = 3

function eldr(...args) {
  const text = execFileSync(
    process.execPath,
    [join(root, 'dist', 'cli', 'main.js'), ...args, '--json', '--quiet'],
    { maxBuffer: 1 << 28 },
  )
  return JSON.parse(text)
}

/** The trace, limited to the domains of the mix. */
async function cut(split, mix) {
  const from = join(root, 'data', `tiny6-prompts.${split}.safetensors`)
  if (MIXES[mix] === undefined) return from
  const file = await openSafetensors(from)
  const names = file.metadata.domains.split(',')
  const rows = [...(await file.read('domain')).entries()]
    .filter(([, d]) => MIXES[mix].includes(names[d]))
    .map(([row]) => row)
  const tensors = {}
  for (const name of file.tensors.keys()) {
    const { dtype, shape } = file.info(name)
    const values = await file.read(name)
    const length = shape.slice(1).reduce((a, b) => a * b, 1)
    const data = new values.constructor(rows.length * length)
    rows.forEach((row, at) => data.set(values.subarray(row * length, (row + 1) * length), at * length))
    tensors[name] = { dtype, shape: [rows.length, ...shape.slice(1)], data }
  }
  const path = join(out, `${mix}.${split}.safetensors`)
  await writeSafetensors(path, { metadata: file.metadata, tensors })
  await file.close()
  return path
}

const mean = values => values.reduce((sum, value) => sum + value, 0) / values.length
const signed = share => `${share < 0 ? '−' : '+'}${Math.abs(100 * share).toFixed(1)} %`
const row = cells => `| ${cells.join(' | ')} |`
const markdown = (head, rows) =>
  [row(head), row(head.map((_, i) => (i === 0 ? '---' : '---:'))), ...rows.map(row)].join('\n')

/** Share of requests in a cluster in which their domain is the most frequent one. */
function purity({ clusters }) {
  const inOwn = clusters.reduce((sum, { domains }) => sum + Math.max(...domains), 0)
  return inOwn / clusters.reduce((sum, { size }) => sum + size, 0)
}

async function measure(mix) {
  const [calibration, evaluation] = [await cut('calibration', mix), await cut('evaluation', mix)]
  const held = await withTrace(evaluation, async trace => trace.requests)
  const cells = []
  let fitted
  for (const workers of WORKERS) {
    const artifact = join(out, `${mix}-${workers}.artifact.safetensors`)
    const fit = eldr('fit', calibration, '--workers', String(workers), '--out', artifact)
    fitted ??= { requests: fit.source.requests, fits: [] }
    fitted.fits.push(fit)
    const rates = RATES.map(rate => rate * workers)
    const topology = `${workers / 2}P${workers}D`
    const policies = [...BALANCERS, 'eldr', 'union']
    const { points } = eldr(
      'simulate',
      '--trace',
      evaluation,
      '--artifact',
      artifact,
      '--topology',
      topology,
      '--rates',
      rates.join(),
      '--policies',
      policies.join(),
      '--requests',
      '600',
      '--seeds',
      String(SEEDS),
    )
    for (const rate of rates) {
      const at = Object.fromEntries(
        points.filter(point => point.rate === rate).map(({ variant, runs }) => [variant, runs]),
      )
      const of = (policy, value) => mean(at[policy].map(value))
      const best = quantile => Math.min(...BALANCERS.map(policy => of(policy, run => run.tpotMs[quantile])))
      const change = policy =>
        ['p50', 'p99']
          .map(quantile => signed(of(policy, run => run.tpotMs[quantile]) / best(quantile) - 1))
          .join(' / ')
      const steps = policy =>
        mean(
          at[policy].map(
            ({ activeByBatch }) =>
              activeByBatch.reduce((sum, { batch, steps: n }) => sum + batch * n, 0) /
              activeByBatch.reduce((sum, { steps: n }) => sum + n, 0),
          ),
        )
      // More concurrent requests than prompts would place a prompt beside its own copy, which flatters every
      // policy that finds it.
      if (steps('jsq') * workers > held) continue
      const experts = policy => of(policy, run => run.activeExperts).toFixed(1)
      cells.push([
        mix,
        topology,
        String(rate),
        steps('jsq').toFixed(1),
        `${best('p50').toFixed(2)} / ${best('p99').toFixed(2)}`,
        change('eldr'),
        change('union'),
        experts('jsq'),
        experts('eldr'),
        experts('union'),
      ])
    }
  }
  return { mix, ...fitted, held, cells }
}

const measured = []
try {
  for (const mix of Object.keys(MIXES)) measured.push(await measure(mix))
} finally {
  rmSync(out, { recursive: true })
}
const rhoOf = (fit, name) =>
  fit.transforms
    .find(transform => transform.name === name)
    ?.rho.toFixed(3)
    .replace('-', '−') ?? '·'
const transforms = ['count', 'count-idf', 'sqrt', 'binary', 'recent', 'recent-idf']
const tables = [
  '# Routing with the tiny model',
  'Written by `node scripts/tiny-report.mjs`. *task* is four English task domains, *languages* is six languages, *all* is both. No choice in the fit used the held-out prompts. Loads with more requests in flight than there are held-out prompts are left out.',
  '**Quality ρ** of each transform over all layers; the last columns show the chosen transform, the selected layers, and its ρ on them:',
  markdown(
    ['prompts', 'calibration', 'held out', ...transforms, 'chosen', 'layers', 'ρ'],
    measured.map(({ mix, requests, held, fits: [fit] }) => [
      mix,
      requests,
      held,
      ...transforms.map(name => rhoOf(fit, name)),
      fit.chosen,
      `${fit.layers.length} of ${fit.source.layers}`,
      fit.rho.toFixed(3),
    ]),
  ),
  '**Clusters**, one per decode worker: mean cosine of requests to their centroid, and share of requests that belong to the most frequent domain of their cluster:',
  markdown(
    ['prompts', ...WORKERS.flatMap(k => [`${k} workers: cosine`, 'in the main domain', 'sizes'])],
    measured.map(({ mix, fits }) => [
      mix,
      ...fits.flatMap(fit => [
        fit.meanSimilarity.toFixed(3),
        `${(100 * purity(fit)).toFixed(0)} %`,
        fit.clusters.map(({ size }) => size).join(' '),
      ]),
    ]),
  ),
  `**Simulated time per output token** on held-out prompts, p50 / p99. *best balancer* is the best of ${BALANCERS.join(', ')}, in ms; *eldr* and *union* are changes against it. Means of ${SEEDS} seeds, 600 requests each, profile h200-first. *batch* is the mean over steps. *experts* are the distinct experts per layer in a step; their mean counts a step once per token:`,
  markdown(
    [
      'prompts',
      'cluster',
      'requests/s',
      'batch (jsq)',
      'best balancer',
      'eldr',
      'union',
      'experts (jsq)',
      'eldr',
      'union',
    ],
    measured.flatMap(({ cells }) => cells),
  ),
].join('\n\n')
writeFileSync(page, `${tables}\n`)
