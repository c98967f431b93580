/**
 * docs/evidence/conversations.md, from docs/evidence/results/conversations.json, which
 * `bench/conversations.mjs` writes, and conversations-live.json, from `eldr bench --turns`.
 */
import { type Interval, meanInterval } from '../sim/confidence.ts'
import type { ConversationFigures, ConversationMode, ConversationRun } from '../sim/conversation-study.ts'
import type { ConversationSpec } from '../sim/conversation-workload.ts'
import { markdownTable } from './markdown-table.ts'
import { fixed, percent, whole } from './numbers.ts'

export interface ConversationsStudied {
  readonly profile: string
  readonly topology: string
  readonly seconds: number
  readonly seeds: number
  readonly prefixCacheTokens: number
  readonly spec: Omit<ConversationSpec, 'turnsReplay'>
  readonly options: { readonly skipPrefillBelowTokens: number }
  readonly rows: readonly ConversationRow[]
}

export interface ConversationRow extends Omit<ConversationRun, 'seed'> {
  readonly runs: readonly ConversationFigures[]
}

/** One run per mode on the embedded cluster. */
export interface LiveConversations {
  readonly at: string
  readonly profile: string
  readonly gigabytesPerSecond: number
  /** Flags of `eldr bench`. */
  readonly load: string
  readonly runs: readonly {
    readonly mode: ConversationMode
    readonly counted: number
    readonly failed: number
    readonly ttftMs: { readonly p50: number; readonly p99: number }
    readonly tpotMs: { readonly p50: number; readonly p99: number }
    readonly turns: Readonly<Record<'kept' | 'alone' | 'moved', number>>
    readonly prefills: number
  }[]
}

export function conversationsPage(studied: ConversationsStudied, live: LiveConversations): string {
  const { profile, topology, seconds, seeds, spec, options, rows } = studied
  const range = ([least, most]: readonly [number, number]) => `${whole(least)} to ${whole(most)}`
  return `# Conversations

What it gives to follow conversations (\`conversations\` in the [configuration](../reference/config.md)), and what it costs. *keep*: the decode worker that has the KV cache of the last turn is preferred, by the time that the transfer would take. *skip*: a turn with at most ${whole(options.skipPrefillBelowTokens)} new tokens may also skip the remote prefill; it is routed by the expert counts of the last turn, and the decode worker computes the new tokens.

## Simulated

${topology}, profile \`${profile}\`, the shipped evaluation trace lab16-task with its artifact, ${whole(seeds)} seeds of ${whole(seconds)} s. Conversations have ${whole(spec.turns)} turns on average, a first prompt of ${range(spec.firstTokens)} tokens, messages of ${range(spec.messageTokens)}, responses of ${range(spec.outputTokens)}, and pauses of ${whole(spec.thinkSeconds)} s on average (exponential). Prefill workers have prefix caches and \`prefix_hash\`; decode workers keep the KV of ended requests in the room that running ones leave, also where conversations are not followed. Of the profile, the times of transfers are assumed.

TTFT is the time to the first token of decode. Changes against the same policy without conversations, in percent, paired by seed, ± 95 %. *prefill*: prompt tokens that prefill workers computed.

${sections(rows)
  .map(section => sectionText(section))
  .join('\n\n')}

## What follows

${findings(rows)}

<!-- not run: it takes minutes; the test of this page compares it with the saved results -->
\`\`\`sh
node bench/conversations.mjs --out docs/evidence/results/conversations.json && npm run docs
\`\`\`

${liveSection(live)}
`
}

type Measure = (run: ConversationFigures) => number

/** Change of a measure against mode off, paired by seed. */
export function changeOf(rows: readonly ConversationRow[], row: ConversationRow, measure: Measure): Interval {
  const off = rows.find(
    other => other.policy === row.policy && other.mode === 'off' && isSamePart(row, other),
  )!
  return meanInterval(row.runs.map((run, seed) => measure(run) / measure(off.runs[seed]!) - 1))
}

function isSamePart(a: ConversationRow, b: ConversationRow): boolean {
  return a.gigabytesPerSecond === b.gigabytesPerSecond && a.rate === b.rate && a.turnsReplay === b.turnsReplay
}

function sections(rows: readonly ConversationRow[]): ConversationRow[][] {
  const parts: ConversationRow[][] = []
  for (const row of rows) {
    const part = parts.find(([first]) => isSamePart(first!, row))
    if (part === undefined) parts.push([row])
    else part.push(row)
  }
  return parts
}

function sectionText(rows: readonly ConversationRow[]): string {
  const { gigabytesPerSecond, rate, turnsReplay } = rows[0]!
  const replayed =
    turnsReplay === 'same'
      ? 'each turn with the experts of the turn before'
      : 'each turn with the experts of another request of its domain'
  return `### ${whole(gigabytesPerSecond)} GB/s, ${whole(rate)} turns per second, ${replayed}

${markdownTable(
  ['policy', 'mode', 'TTFT p50', 'TTFT p99', 'TPOT p50', 'TPOT p99', 'prefill', 'stayed / alone'],
  2,
  rows.map(row => [
    `\`${row.policy}\``,
    row.mode,
    ...(row.mode === 'off' ? absolute(row) : changes(rows, row)),
  ]),
)}`
}

const mean = ({ runs }: ConversationRow, measure: Measure) => meanInterval(runs.map(measure)).mean

function absolute(row: ConversationRow): string[] {
  return [
    `${fixed(
      mean(row, run => run.ttftP50Ms),
      1,
    )} ms`,
    `${fixed(
      mean(row, run => run.ttftP99Ms),
      1,
    )} ms`,
    `${fixed(
      mean(row, run => run.tpotP50Ms),
      2,
    )} ms`,
    `${fixed(
      mean(row, run => run.tpotP99Ms),
      2,
    )} ms`,
    `${fixed(mean(row, run => run.turns.prefilledTokens) / 1e6, 2)} M`,
    '·',
  ]
}

function changes(rows: readonly ConversationRow[], row: ConversationRow): string[] {
  const measures: Measure[] = [
    run => run.ttftP50Ms,
    run => run.ttftP99Ms,
    run => run.tpotP50Ms,
    run => run.tpotP99Ms,
    run => run.turns.prefilledTokens,
  ]
  const share = (of: Measure) =>
    percent(mean(row, run => of(run) / (run.turns.kept + run.turns.alone + run.turns.moved)))
  return [
    ...measures.map(measure => interval(changeOf(rows, row, measure))),
    `${share(run => run.turns.kept + run.turns.alone)} / ${share(run => run.turns.alone)}`,
  ]
}

/** Lowest and highest mean change over the rows of a mode. */
function extent(rows: readonly ConversationRow[], mode: ConversationMode, measure: Measure): string {
  const means = rows.filter(row => row.mode === mode).map(row => changeOf(rows, row, measure).mean)
  return `${signed(Math.min(...means))} to ${signed(Math.max(...means))} %`
}

function findings(rows: readonly ConversationRow[]): string {
  const [fast, slow] = [
    rows.filter(row => row.gigabytesPerSecond >= 10),
    rows.filter(row => row.gigabytesPerSecond < 10),
  ]
  const [same, other] = [
    rows.filter(row => row.turnsReplay === 'same'),
    rows.filter(row => row.turnsReplay !== 'same'),
  ]
  const ttft: Measure = run => run.ttftP50Ms
  const tpot: Measure = run => run.tpotP50Ms
  const tail: Measure = run => run.tpotP99Ms
  return `- *keep* hardly changes anything on a fast network (TTFT p50 ${extent(fast, 'keep', ttft)}) and pays on a slow one (${extent(slow, 'keep', ttft)}). TPOT changes by ${extent(rows, 'keep', tpot)} at p50 and ${extent(rows, 'keep', tail)} at p99.
- *skip* shortens TTFT p50 by more (${extent(fast, 'skip', ttft)} and ${extent(slow, 'skip', ttft)}) and relieves prefill workers (${extent(rows, 'skip', run => run.turns.prefilledTokens)} of the tokens).
- *skip* costs TPOT where a turn’s experts are not those of the turn before: ${extent(other, 'skip', tpot)} at p50, ${extent(other, 'skip', tail)} at p99, above the [bound](harm.md) of wrong artifacts in places. For responses of 200 tokens that can be more time than it saves. Where they are the same, it costs ${extent(same, 'skip', tpot)} and ${extent(same, 'skip', tail)}. Real conversations are between the two.
- So both are off by default. Turn on *keep* where transfers are slow, and *skip* where the first token matters most, or prefill workers are the bottleneck.`
}

function liveSection({ at, profile, gigabytesPerSecond, load, runs }: LiveConversations): string {
  const failed = runs.reduce((sum, run) => sum + run.failed, 0)
  return `## Live: the embedded cluster

A real gateway with its default policy, one prefill and four decode workers that replay experts, profile \`${profile}\` with ${whole(gigabytesPerSecond)} GB/s, \`eldr bench ${load}\`. One run per mode, ${whole(runs[0]!.counted)} counted turns each, on two cores that other work shared, ${at.slice(0, 10)}; ${whole(failed)} failed. Turns: those of known conversations that stayed, stayed without prefill, and moved.

${markdownTable(
  ['mode', 'TTFT p50 ms', 'TTFT p99 ms', 'TPOT p50 ms', 'TPOT p99 ms', 'stayed / alone / moved', 'prefills'],
  1,
  runs.map(({ mode, ttftMs, tpotMs, turns, prefills }) => [
    mode,
    fixed(ttftMs.p50, 1),
    fixed(ttftMs.p99, 1),
    fixed(tpotMs.p50, 2),
    fixed(tpotMs.p99, 2),
    `${whole(turns.kept)} / ${whole(turns.alone)} / ${whole(turns.moved)}`,
    whole(prefills),
  ]),
)}

<!-- not run: it measures for minutes -->
\`\`\`sh
node bench/conversations-live.mjs --out docs/evidence/results/conversations-live.json && npm run docs
\`\`\``
}

const signed = (share: number) =>
  `${share > 0 ? '+' : share < 0 ? '−' : ''}${fixed(Math.abs(100 * share), 1)}`
const interval = ({ mean: middle, half }: Interval) => `${signed(middle)} ± ${fixed(100 * half, 1)}`
