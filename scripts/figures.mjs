// Draws the figures of docs/start/concepts.md and docs/guides/policies.md as SVG for light and dark pages:
//   npm run build && node scripts/figures.mjs [--check] [--tau FILE]
// --check writes nothing and exits with 1 if a figure is stale. --tau FILE first makes
// docs/evidence/results/tau.json from the JSON output of the sweep in docs/guides/policies.md. Charts come
// from the saved results and the code that draws reports.
import { readFileSync, writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { DIAGRAMS } from './figures/diagrams.mjs'
import { figureOf } from '../dist/report/figure.js'
import { lineChart } from '../dist/report/line-chart.js'
import { resultText } from '../dist/report/result-text.js'

const docs = name => new URL(`../docs/${name}`, import.meta.url)
const json = name => JSON.parse(readFileSync(docs(`evidence/results/${name}.json`), 'utf8'))
const whole = JSON.parse(await resultText(docs('evidence/results/whole.json.br')))
const exhibits = whole.sections.flatMap(section => section.exhibits)
const chartsOf = id => exhibits.find(exhibit => exhibit.id === id).charts

/** A chart of a saved exhibit with a legend above it. */
function saved(id, index, title, description) {
  const { x, y, series } = chartsOf(id)[index]
  const drawn = series.map(({ label, points, star }, group) => ({
    label,
    group,
    points,
    star: star === undefined ? undefined : { index: star },
  }))
  return figureOf({
    title,
    description,
    legend: series.map(({ label }) => label),
    body: lineChart({ id, title, description, x: { label: x }, y: { label: y }, series: drawn }),
  })
}

/** Changes against jsq in percent, mean over seeds. */
function keepTau(file) {
  const { points, ...about } = JSON.parse(readFileSync(file, 'utf8'))
  const mean = (runs, of) => runs.reduce((sum, run) => sum + of(run), 0) / runs.length
  const change = (runs, jsq, key) =>
    Number((100 * (mean(runs, run => run.tpotMs[key]) / mean(jsq, run => run.tpotMs[key]) - 1)).toFixed(2))
  const rates = [...new Set(points.map(point => point.rate))].map(rate => {
    const at = points.filter(point => point.rate === rate)
    const jsq = at.find(point => point.variant === 'jsq').runs
    const bands = at.flatMap(({ variant, runs }) => {
      const [, band] = /^band@(.+)$/.exec(variant) ?? []
      return band === undefined
        ? []
        : [{ tau: Number(band), p50: change(runs, jsq, 'p50'), p99: change(runs, jsq, 'p99') }]
    })
    return { rate, bands }
  })
  const { trace, profile, topology, requests, seeds } = about
  writeFileSync(
    docs('evidence/results/tau.json'),
    `${JSON.stringify({ trace, profile, topology, requests, seeds, rates }, undefined, 1)}\n`,
  )
}

function tau() {
  const { rates } = json('tau')
  const measures = [
    ['median', 'p50'],
    ['99th percentile', 'p99'],
  ]
  const series = rates.flatMap(({ rate, bands }, i) =>
    measures.map(([name, key], j) => ({
      label: `${name}, ${rate}/s`,
      group: i * 2 + j,
      dashed: key === 'p99',
      points: bands.map(band => ({ x: band.tau, y: band[key] })),
    })),
  )
  const title = 'TPOT by band width'
  const description =
    'Change of TPOT against jsq by τ: the median is best below 0.2, p99 between 0.1 and 0.3.'
  const body = lineChart({
    id: 'tau',
    title,
    description,
    x: { label: 'τ', from: 0 },
    y: { label: 'change of TPOT against jsq, %' },
    series,
    rules: [{ y: 0, label: 'jsq' }],
  })
  return figureOf({ title, description, legend: series.map(({ label }) => label), body })
}

const { values: flags } = parseArgs({ options: { check: { type: 'boolean' }, tau: { type: 'string' } } })
if (flags.tau !== undefined) keepTau(flags.tau)

const FIGURES = {
  ...DIAGRAMS,
  'layer-time.svg': saved(
    'fig-2',
    0,
    'Time of one MoE layer by active experts',
    'Time grows linearly with the number of active experts, at batch 64 on an H200.',
  ),
  'same-domain.svg': saved(
    'fig-4',
    0,
    'Active experts of mixed and single-domain batches',
    'At every batch size a batch of one domain activates fewer experts than a mixed one.',
  ),
  'layers-kept.svg': saved(
    'fig-8',
    0,
    'Quality ρ by layers kept',
    'ρ peaks with a subset of the layers and falls when all are kept.',
  ),
  'tau.svg': tau(),
}

const stale = []
for (const [name, text] of Object.entries(FIGURES)) {
  const file = docs(`pictures/${name}`)
  if (flags.check !== true) writeFileSync(file, text)
  else if (readFileSync(file, 'utf8') !== text) stale.push(name)
}
if (stale.length > 0) {
  console.error(`stale: ${stale.join(', ')}; run npm run build && node scripts/figures.mjs`)
  process.exitCode = 1
}
