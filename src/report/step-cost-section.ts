/**
 * A section of docs/evidence/drift.md, from docs/evidence/results/step-cost.json, which `bench/step-cost.mjs`
 * writes.
 */
import type { Interval } from '../sim/confidence.ts'
import { markdownTable } from './markdown-table.ts'
import { fixed, many, whole } from './numbers.ts'

export interface StepCostFigures {
  readonly topology: string
  readonly requests: number
  readonly measured: { readonly first: number; readonly end: number }
  readonly seeds: number
  readonly rows: readonly StepCostRow[]
}

interface StepCostRow {
  readonly mix: string
  readonly profile: string
  /** Of one decode worker. */
  readonly slowness: number
  readonly rate: number
  /** Mean batch and median TPOT with the exact cost. */
  readonly batch: number
  readonly p50Ms: number
  /** Changes of TPOT against union with the exact cost. */
  readonly policies: readonly { readonly policy: string; readonly p50: Interval; readonly p99: Interval }[]
}

/** Points of p50 that learning may cost against the exact cost. */
const TARGET = 0.01
const NAMES: Readonly<Record<string, string>> = {
  'union@learnt': 'learnt',
  'union@default': 'built-in',
  jsq: '`jsq`',
}

export function stepCostSection({ topology, requests, measured, seeds, rows }: StepCostFigures): string[] {
  const learnt = rows.map(row => ({ row, ...row.policies.find(({ policy }) => policy === 'union@learnt')! }))
  const missed = learnt.filter(({ p50 }) => p50.mean > TARGET)
  const worst = learnt.reduce((most, one) => (one.p50.mean > most.p50.mean ? one : most))
  const slow = rows.filter(({ slowness }) => slowness > 1)
  const p99 = (name: string) =>
    slow.map(({ policies }) => policies.find(({ policy }) => policy === name)!.p99.mean)
  const span = (values: readonly number[]) =>
    `${percent(Math.min(...values))} to ${percent(Math.max(...values))}`
  return [
    '## Learnt cost of a step',
    `\`union\` learns the cost of a decode step on each worker from the times between tokens, starting from a built-in cost. Here the cluster has another cost: the profile below, and in half of the rows one decode worker that takes ${fixed(slow[0]!.slowness, 1)} times as long. Changes of TPOT p50 / p99 in % against \`union\` with the exact cost of every worker, ± 95 %. Target: p50 at most ${fixed(100 * TARGET, 0)} point above it. **${missed.length === 0 ? `Met in all ${rows.length} rows` : `Missed in ${missed.length} of ${rows.length} rows`}**; the largest is ${percent(worst.p50.mean)} (${worst.row.profile}, ${worst.row.mix}, ${whole(worst.row.rate)} per second).`,
    `With a slow worker, p99 changes by ${span(p99('union@learnt'))} with learnt costs and by ${span(p99('union@default'))} with the built-in cost, which does not know that the worker is slow and sends it as many requests as the others. That is also why the built-in cost has the lower p50: all other workers have fewer requests. Without a slow worker, the built-in cost does about as well as the exact one: the proportion of the costs matters little, the speed of each worker matters much.`,
    'What is learnt for each worker is its speed. The proportion of base, expert and request is one for the whole cluster, and it is mostly that of the prior: after 5,000 streams it has moved only about a third of the way to a very different one, because a weaker prior cost up to 1.5 points of p50 on calibration traces. So read the parts that metrics report as a share of a step whose total is right, not as measured costs of experts or requests.',
    `Simulated: ${topology}, matched artifacts, ${whole(requests)} requests, of which numbers ${whole(measured.first)} to ${whole(measured.end)} are measured, ${many(seeds, 'seed')}. \`npm run build && node bench/step-cost.mjs --seeds ${seeds} --requests ${requests} --out docs/evidence/results/step-cost.json\` makes the table again; \`eldr simulate --policies union@learnt,union@default,union@exact\` compares the three on your traces.`,
    markdownTable(
      ['profile', 'slow worker', 'mix', 'per second', 'batch', ...Object.values(NAMES)],
      3,
      rows.map(({ profile, slowness, mix, rate, batch, policies }) => [
        profile,
        slowness === 1 ? 'none' : `× ${fixed(slowness, 1)}`,
        mix,
        whole(rate),
        fixed(batch, 0),
        ...Object.keys(NAMES).map(name => {
          const { p50, p99: tail } = policies.find(({ policy }) => policy === name)!
          return `${within(p50)} / ${within(tail)}`
        }),
      ]),
    ),
  ]
}

const percent = (share: number) => `${share > 0 ? '+' : ''}${fixed(100 * share, 1)} %`
const within = ({ mean, half }: Interval) =>
  `${mean > 0 ? '+' : ''}${fixed(100 * mean, 1)} ± ${fixed(100 * half, 1)}`
