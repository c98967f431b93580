/** docs/evidence/experiment.md, from results/experiment.json, which `bench/experiment.mjs` writes. */
import type { Effect } from '../sim/switchback-analysis.ts'
import { markdownTable } from './markdown-table.ts'
import { fixed, whole } from './numbers.ts'

export interface ExperimentFigures {
  readonly trace: string
  readonly topology: string
  readonly profile: string
  readonly slotSeconds: number
  readonly washoutSeconds: number
  readonly slots: number
  readonly rate: number
  readonly cases: readonly ExperimentCase[]
}

export interface ExperimentCase {
  readonly base: string
  readonly policy: string
  readonly arrivals: string
  readonly runs: number
  readonly figures: readonly {
    readonly figure: string
    /** Runs whose interval contains 0. */
    readonly covers: number
    /** Runs whose interval is below 0. */
    readonly lower: number
    /** Means over the runs. */
    readonly change: number
    readonly half: number
    readonly lag1: number
  }[]
}

/** One experiment on the embedded cluster. */
export interface LiveExperiment {
  readonly at: string
  readonly cluster: string
  readonly machine: string
  readonly command: string
  readonly conditions: string
  readonly base: string
  readonly policy: string
  readonly streams: number
  readonly words: string
  readonly effects: readonly Effect[]
}

const ARRIVALS: Readonly<Record<string, string>> = {
  poisson: 'Poisson arrivals',
  on_off: 'bursts of 5 s after pauses of 5 s, on average',
}
const caseOf = (cases: readonly ExperimentCase[], arrivals: string) =>
  cases.find(each => each.arrivals === arrivals)!
const runsOf = (cases: readonly ExperimentCase[], arrivals: string) => caseOf(cases, arrivals).runs
const p50Of = (cases: readonly ExperimentCase[], arrivals: string) =>
  caseOf(cases, arrivals).figures.find(({ figure }) => figure === 'TPOT p50')!
const points = (value: number) => `${value < 0 ? '−' : ''}${fixed(Math.abs(100 * value), 2)}`
const share = (part: number, of: number) => fixed((100 * part) / of, 1)

export function experimentPage(figures: ExperimentFigures, live: LiveExperiment): string {
  const { trace, topology, profile, slotSeconds, washoutSeconds, slots, rate, cases } = figures
  const same = cases.filter(({ base, policy }) => base === policy)
  const different = cases.filter(({ base, policy }) => base !== policy)
  return [
    '# Are the intervals of an experiment right?',
    '',
    [
      '`eldr experiment` switches a gateway between policies and says with a 95 % interval how TPOT, TTFT and',
      'throughput differ. Here whole experiments are simulated, and measured and analysed by the same code as live',
      'ones (`src/math/switchback.ts`, `src/sim/switchback-analysis.ts`).',
    ].join(' '),
    '',
    [
      `Each run has ${slots} slots of ${slotSeconds} s with a washout of ${washoutSeconds} s: ${slots / 2} blocks. Trace ${trace}, topology ${topology},`,
      `profile ${profile}, ${rate} requests per second, the seed of a run is its number.`,
      'Written by `npm run docs` from the results of `node bench/experiment.mjs --out docs/evidence/results/experiment.json`.',
    ].join(' '),
    '',
    '## A policy against itself',
    '',
    'There is no difference, so an interval of 95 % must contain 0 in 95 of 100 runs. Of 400 runs, 92 to 98 % is what chance allows. Half width: mean over the runs, in percent.',
    '',
    markdownTable(
      ['policy', 'arrivals', 'figure', 'runs', 'contain 0, %', 'half width, %', 'lag-1 correlation'],
      3,
      same.flatMap(({ policy, arrivals, runs, figures: rows }) =>
        rows.map(({ figure, covers, half, lag1 }) => [
          policy,
          ARRIVALS[arrivals] ?? arrivals,
          figure,
          whole(runs),
          share(covers, runs),
          points(half),
          points(lag1 / 100),
        ]),
      ),
    ),
    '',
    '## A real difference',
    '',
    'How often the interval excludes 0, and the mean change that was found.',
    '',
    markdownTable(
      ['policies', 'arrivals', 'figure', 'runs', 'below 0, %', 'contain 0, %', 'change, %', 'half width, %'],
      3,
      different.flatMap(({ base, policy, arrivals, runs, figures: rows }) =>
        rows.map(({ figure, covers, lower, change, half }) => [
          `${policy} against ${base}`,
          ARRIVALS[arrivals] ?? arrivals,
          figure,
          whole(runs),
          share(lower, runs),
          share(covers, runs),
          points(change),
          points(half),
        ]),
      ),
    ),
    '',
    [
      'Bursts here are as long as half a slot, so that a slot may fall into a pause. Differences between slots then have',
      `heavy tails: intervals of TPOT p50 contain 0 in ${share(p50Of(same, 'on_off').covers, runsOf(same, 'on_off'))} % of the runs instead of 95, and find the gain of union`,
      `in ${share(p50Of(different, 'on_off').lower, runsOf(different, 'on_off'))} % only. They err on the safe side; slots of many bursts, or more of them, find more.`,
      'TTFT and throughput are decided by prefill and by the arrivals, which the policies share. Each figure has an interval',
      'of its own: that one of five excludes 0 by chance is more likely than for one alone.',
    ].join(' '),
    '',
    '## On the embedded cluster',
    '',
    `One run of \`${live.command}\` beside \`${live.cluster}\`, ${live.conditions}, ${live.at}, on ${live.machine}: ${whole(live.streams)} streams measured.`,
    '',
    markdownTable(
      ['figure', live.base, live.policy, 'change, %', '95 % interval', 'blocks'],
      1,
      live.effects.map(({ figure, base, other, change, low, high, blocks }) => [
        figure,
        fixed(base, 2),
        fixed(other, 2),
        points(change),
        `${points(low)} to ${points(high)}`,
        whole(blocks),
      ]),
    ),
    '',
    'TTFT here ends with the first token of decode, whose first step is shorter under the better policy; in the simulation it ends with prefill’s token.',
    '',
  ].join('\n')
}
