/**
 * docs/evidence/harm.md, from docs/evidence/results/harm.json and tau-harm.json, which `bench/harm.mjs`
 * writes, and harm-live.json, from `eldr bench --sweep`.
 */
import type { Interval } from '../sim/confidence.ts'
import { BOUND, keepsBound, PAPERS_RULE } from '../sim/drift/bound.ts'
import { markdownTable } from './markdown-table.ts'
import { fixed, many, whole } from './numbers.ts'

export interface HarmFigures {
  readonly profile: string
  readonly topology: string
  readonly requests: number
  readonly arrivals: string
  readonly seeds: number
  readonly rows: readonly HarmRow[]
}

/** Changes of TPOT against jsq under the same conditions. */
export interface HarmRow {
  readonly mix: string
  readonly rate: number
  /** Mean batch under jsq. */
  readonly batch: number
  readonly artifact: string
  readonly policy: string
  readonly p50: Interval
  readonly p99: Interval
  readonly gateways?: { readonly count: number; readonly viewAgeMs: number | null }
}

/** A sweep on the embedded cluster with the artifact of other traffic. */
export interface LiveHarm {
  readonly at: string
  readonly settings: { readonly topology: string; readonly profile: string }
  readonly cells: readonly {
    readonly policy: string
    readonly rate: number
    readonly live: {
      readonly requests: { readonly counted: number; readonly failed: number }
      readonly tpotMs: Tpot
    }
    readonly simulated: { readonly tpotMs: Tpot }
  }[]
}

interface Tpot {
  readonly p50: number
  readonly p99: number
}

const ARTIFACTS: Readonly<Record<string, string>> = {
  matched: 'fitted on the calibration trace of the same mix',
  foreign: 'fitted on the other mix',
  shuffled: 'experts permuted in every layer: another version of the model',
  centroids: 'random centroids; calibration requests as they were',
  random: 'random centroids, signatures and decode patterns',
}

export function harmPage(figures: HarmFigures, live: LiveHarm, byTau: HarmFigures): string {
  const { rows, seeds, requests, profile, topology, arrivals } = figures
  const alone = rows.filter(({ gateways }) => gateways === undefined)
  const [light, single] = [alone.filter(isLight), alone.filter(row => !isLight(row))]
  const several = rows.filter(({ gateways }) => gateways !== undefined)
  const policies = distinct(rows.map(({ policy }) => policy))
  return `# What a wrong artifact costs

Routing by experts must not cost more than balancing load, whatever the artifact. The bound for \`eldr\` and \`union\`: TPOT at most ${whole(100 * BOUND.p50)} % above \`jsq\` at the median and ${whole(100 * BOUND.p99)} % at p99, as a mean over seeds, at batches of 10 to 45 on ${topology}. \`band\` is the paper’s rule, without a bound. [Drift](drift.md#small-clusters) has small clusters with a slow worker.

Simulated: ${topology}, profile \`${profile}\` (a decode step in plain torch), the shipped evaluation traces of lab16, ${arrivals} arrivals, ${whole(requests)} requests per run, ${whole(seeds)} seeds. Changes of TPOT p50 / p99 against \`jsq\` in percent, paired by seed, ± 95 %. Cells above the bound are **bold**. Seeds share three draws of each random artifact. Constants were chosen on calibration traces alone (\`--held-out\`), except how much load slow workers may pass on, which was settled on evaluation traces and matters only with a slow worker.

Artifacts:

${Object.entries(ARTIFACTS)
  .map(([name, words]) => `- *${name}*: ${words}`)
  .join('\n')}

## The default policy

${summaryTable(single, policies)}

*Worst* is the highest mean of any cell and any artifact. \`union\` is the default: it meets the bound, has the lowest tail with one gateway or a shared view, and keeps most of its gain without a matching artifact. Gateways that share nothing should use \`eldr\`. \`union\` knows the cost of a step here; \`union@learnt\` is what a gateway runs by default: it begins with another cost and [learns](drift.md#learnt-cost-of-a-step).

## Gain kept

Share of \`band\`’s p50 gain that the policies with a bound keep on matched artifacts; target: at least ${whole(100 * MIN_GAIN_KEPT)} %. The p99 changes stand beside it.

${gainTable(single, policies)}

${missedGain(single)}

${tauSection(byTau)}

## One gateway

${cellTable(single, policies)}

## Light load

A small batch has few experts to share, and one request more makes it much slower: there is little to gain, and p99 is that of the fullest worker. So \`eldr\` doubles its price of load at a mean of 3 requests per worker. Gateways that share nothing see only their part of a batch, and gain less ([four gateways](#four-gateways)).

${cellTable(light, policies)}

## Four gateways

Each gateway keeps its own usual similarities (\`eldr\`); they see each other’s requests after 20 ms, or never. Compared with \`jsq\` under the same view.

${cellTable(several, policies)}

<!-- not run: it takes minutes; the test of this page compares it with the saved results -->
\`\`\`sh
node bench/harm.mjs --out docs/evidence/results/harm.json && npm run docs
\`\`\`

${liveSection(live)}
`
}

function liveSection({ at, settings, cells }: LiveHarm): string {
  const [base] = cells
  const change = (of: Tpot, from: Tpot) => pair({ p50: of.p50 / from.p50 - 1, p99: of.p99 / from.p99 - 1 })
  const failed = cells.reduce((sum, { live }) => sum + live.requests.failed, 0)
  return `## Live: a swapped artifact

Replayed on the embedded cluster (real gateway and workers, step times from a profile): ${settings.topology}, profile \`${settings.profile}\`, task traffic with the artifact of the language mix, ${whole(base!.rate)} requests per second, one run of ${whole(base!.live.requests.counted)} counted requests per policy on two cores, ${at.slice(0, 10)}; ${whole(failed)} failed. Change of TPOT p50 / p99 against \`${base!.policy}\` in percent:

${markdownTable(
  ['policy', 'TPOT p50 ms', 'TPOT p99 ms', 'change', 'simulated'],
  1,
  cells.map(({ policy, live, simulated }) => [
    `\`${policy}\``,
    fixed(live.tpotMs.p50, 2),
    fixed(live.tpotMs.p99, 2),
    ...(policy === base!.policy
      ? ['·', '·']
      : [change(live.tpotMs, base!.live.tpotMs), change(simulated.tpotMs, base!.simulated.tpotMs)]),
  ]),
)}

<!-- not run: it measures for minutes -->
\`\`\`sh
npx eldr fit data/lab16-lang.calibration.safetensors -k 4 -o lang.artifact.safetensors
npx eldr bench --sweep --trace data/lab16-task.evaluation.safetensors --artifact lang.artifact.safetensors \\
  --policies jsq,band,eldr,union --rates 90 --requests 1500 --topology 2P4D --profile h200-qwen3-30b-a3b
\`\`\`

Language traffic on the artifact of the task mix has only been simulated ([one gateway](#one-gateway)). To run it live, exchange \`task\` and \`lang\` in these commands.`
}

function summaryTable(rows: readonly HarmRow[], policies: readonly string[]): string {
  return markdownTable(
    ['policy', 'matched, mean p50 / p99', 'not matched, mean', 'worst p50 / p99', 'within the bound'],
    1,
    policies.map(policy => {
      const own = rows.filter(row => row.policy === policy)
      const [matched, others] = [true, false].map(is =>
        own.filter(({ artifact }) => (artifact === 'matched') === is),
      )
      const kept = own.filter(isWithin).length
      return [
        `\`${policy}\``,
        pair(meanOf(matched!)),
        pair(meanOf(others!)),
        pair({
          p50: Math.max(...own.map(({ p50 }) => p50.mean)),
          p99: Math.max(...own.map(({ p99 }) => p99.mean)),
        }),
        `${whole(kept)} of ${whole(own.length)}`,
      ]
    }),
  )
}

/** With a matching artifact, a policy must keep at least this share of band's p50 gain. */
const MIN_GAIN_KEPT = 0.95

export interface GainKept {
  /** The row of the policy, and that of band under the same conditions. */
  readonly row: HarmRow
  readonly band: HarmRow
  /** Change of p50 as a share of band's. */
  readonly share: number
  readonly met: boolean
}

/** For every cell with a matching artifact and every policy but band. */
export function gainsKept(rows: readonly HarmRow[]): GainKept[] {
  const matched = rows.filter(({ artifact }) => artifact === 'matched').toSorted(byArtifact)
  return matched
    .filter(({ policy }) => policy !== PAPERS_RULE)
    .map(row => {
      const isSameCell = ({ policy, mix, rate }: HarmRow) =>
        policy === PAPERS_RULE && mix === row.mix && rate === row.rate
      const band = matched.find(isSameCell)!
      const share = row.p50.mean / band.p50.mean
      return { row, band, share, met: share >= MIN_GAIN_KEPT }
    })
}

const cellOf = ({ mix, batch }: HarmRow) => `${mix}, batch ${fixed(batch, 0)}`

function gainTable(rows: readonly HarmRow[], policies: readonly string[]): string {
  const gains = gainsKept(rows)
  const others = policies.filter(policy => policy !== PAPERS_RULE)
  return markdownTable(
    ['traffic', '`band` p99', ...others.flatMap(policy => [`\`${policy}\` keeps`, `\`${policy}\` p99`])],
    1,
    distinct(gains.map(({ row }) => cellOf(row))).map(cell => [
      cell,
      signed(gains.find(({ row }) => cellOf(row) === cell)!.band.p99.mean),
      ...others.flatMap(policy => {
        const { row, share, met } = gains.find(one => one.row.policy === policy && cellOf(one.row) === cell)!
        return [`${fixed(100 * share, 1)} %, ${met ? 'met' : '**missed**'}`, signed(row.p99.mean)]
      }),
    ]),
  )
}

function missedGain(rows: readonly HarmRow[]): string {
  const missed = gainsKept(rows).filter(({ met }) => !met)
  if (missed.length === 0) return 'Met in every cell.'
  const cells = distinct(missed.map(({ row }) => cellOf(row)))
  const cellsWithin = distinct(missed.filter(({ band }) => isWithin(band)).map(({ row }) => cellOf(row)))
  const whatOfBound =
    cellsWithin.length === 0
      ? 'The bound is the reason: `band` is above it there.'
      : `The bound with a matching artifact is not the reason: \`band\` itself keeps it at ${cellsWithin.join('; ')}.`
  const points = missed.map(({ row, band }) => 100 * (band.p99.mean - row.p99.mean))
  return `Missed at ${cells.join('; ')}. ${whatOfBound} The policies balance load more than \`band\` and exchange some of the median for the tail: where the target is missed, their p99 is ${fixed(Math.min(...points), 1)} to ${fixed(Math.max(...points), 1)} points below that of \`band\`.`
}

/** The curve between median and tail: both by τ. */
function tauSection({ rows, seeds, requests }: HarmFigures): string {
  const policies = distinct(rows.map(({ policy }) => policy))
  const command =
    'node bench/harm.mjs --one-gateway --policies eldr@0.05,eldr,eldr@0.2,band@0.05,band,band@0.2 \\\n' +
    '  --artifacts matched,foreign --rates 300,500 --light 150 --seeds 3 --requests 4000 \\\n' +
    '  --out docs/evidence/results/tau-harm.json && npm run docs'
  return `## Median against tail

A smaller τ gives load a lower price: more gain at the median, less at the tail. \`eldr\` and \`band\` are at τ = 0.1, the default, which is for all loads. Only ${many(seeds, 'seed')} of ${whole(requests)} requests, so intervals are wide; cells above the bound are **bold**.

${cellTable(
  rows.toSorted((a, b) => a.rate - b.rate),
  policies,
)}

<!-- not run: it takes minutes -->
\`\`\`sh
${command}
\`\`\``
}

function cellTable(rows: readonly HarmRow[], policies: readonly string[]): string {
  const viewOf = ({ gateways }: HarmRow) =>
    gateways === undefined
      ? ''
      : gateways.viewAgeMs === null
        ? ', nothing shared'
        : `, ${gateways.viewAgeMs} ms`
  const nameOf = (row: HarmRow) => `${row.mix}, ${row.artifact}, batch ${fixed(row.batch, 0)}${viewOf(row)}`
  const names = distinct(rows.toSorted(byArtifact).map(nameOf))
  return markdownTable(
    ['traffic, artifact', ...policies.map(policy => `\`${policy}\``)],
    1,
    names.map(name => [
      name,
      ...policies.map(policy => {
        const row = rows.find(one => one.policy === policy && nameOf(one) === name)!
        const text = `${interval(row.p50)} / ${interval(row.p99)}`
        return isWithin(row) ? text : `**${text}**`
      }),
    ]),
  )
}

/** Below the batches that the bound is for. */
const isLight = ({ batch }: HarmRow) => batch < 8

const isWithin = ({ p50, p99 }: HarmRow) => keepsBound({ p50Change: p50, p99Change: p99 }) === true

/** By mix, then by artifact; rates stay in their order. */
function byArtifact(a: HarmRow, b: HarmRow): number {
  const order = Object.keys(ARTIFACTS)
  return a.mix === b.mix ? order.indexOf(a.artifact) - order.indexOf(b.artifact) : a.mix < b.mix ? 1 : -1
}

function meanOf(rows: readonly HarmRow[]): { p50: number; p99: number } {
  const mean = (of: (row: HarmRow) => number) => rows.reduce((sum, row) => sum + of(row), 0) / rows.length
  return { p50: mean(({ p50 }) => p50.mean), p99: mean(({ p99 }) => p99.mean) }
}

const signed = (share: number) =>
  `${share > 0 ? '+' : share < 0 ? '−' : ''}${fixed(Math.abs(100 * share), 1)}`
const interval = ({ mean, half }: Interval) => `${signed(mean)} ± ${fixed(100 * half, 1)}`
const pair = (of: { readonly p50: number; readonly p99: number }) => `${signed(of.p50)} / ${signed(of.p99)}`
const distinct = <T>(list: readonly T[]): T[] => [...new Set(list)]
