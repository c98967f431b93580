/**
 * docs/evidence/experiment.md, from files under results/ that `bench/experiment.mjs`,
 * `bench/experiment-live.mjs` and `bench/shadow.mjs` write.
 */
import type { Effect, MeasuredSlot, Outcome } from '../sim/switchback-analysis.ts'
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
  /** Absent in results from before there were verdicts. */
  readonly verdicts?: Readonly<Record<Outcome, number>>
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
  readonly cluster: string
  readonly command: string
  readonly conditions: string
  readonly cores: number
  readonly loadAverage: number
  /** Output of `eldr experiment --json`. */
  readonly result: {
    readonly at: string
    readonly comparisons: readonly {
      readonly base: string
      readonly policy: string
      readonly outcome: Outcome
      readonly words: string
      readonly effects: readonly Effect[]
    }[]
    readonly cautions: readonly string[]
    readonly slots: readonly MeasuredSlot[]
  }
}

/** CPU time of the gateway with and without shadow policies. */
export interface ShadowFigures {
  readonly at: string
  readonly cores: number
  readonly loadAverage: number
  readonly policy: string
  readonly shadow: readonly string[]
  readonly starts: number
  readonly rounds: number
  readonly without: Measured
  readonly beside: Measured
  readonly ratio: number
  readonly low: number
  readonly high: number
}

interface Measured {
  readonly cpuUs: number
  readonly requestsPerSecond: number
}

export interface ExperimentResults {
  readonly figures: ExperimentFigures
  /** Fewer runs, with verdicts. */
  readonly judged: ExperimentFigures
  /** Every run, in order. */
  readonly live: readonly LiveExperiment[]
  readonly shadow: ShadowFigures
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

export function experimentPage({ figures, judged, live, shadow }: ExperimentResults): string {
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
    '## Verdicts',
    '',
    [
      'A verdict needs more than an interval without 0, because it looks at five figures: 98 % for each of TPOT p50 and',
      'p99, which make a policy *better* or *worse*, and 99.3 % for TTFT and throughput, which make it *mixed* where they are',
      'worse. So at most 5 % of experiments with equal policies should get one. These are fewer runs than above, of the same',
      'seeds: `node bench/experiment.mjs --null 60 --real 6 --out docs/evidence/results/experiment-verdicts.json`.',
    ].join(' '),
    '',
    markdownTable(
      ['policies', 'arrivals', 'runs', 'better', 'worse', 'mixed', 'no difference found'],
      2,
      judged.cases.map(({ base, policy, arrivals, runs, verdicts }) => [
        `${policy} against ${base === policy ? 'itself' : base}`,
        ARRIVALS[arrivals] ?? arrivals,
        ...[runs, verdicts!.better, verdicts!.worse, verdicts!.mixed, verdicts!.undecided].map(whole),
      ]),
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
    'Every run since 2026-11-17 is shown, also one that finds nothing. `node bench/experiment-live.mjs --out docs/evidence/results/experiment-live.json` adds one.',
    '',
    ...live.flatMap(liveLines),
    'TTFT here ends with the first token of decode, whose first step is shorter under the better policy; in the simulation it ends with prefill’s token.',
    '',
    '## Cost of shadow policies',
    '',
    [
      `With ${shadow.shadow.join(' and ')} beside ${shadow.policy} the gateway takes ${fixed(shadow.ratio, 3)} times the CPU time per request (95 % interval`,
      `${fixed(shadow.low, 3)} to ${fixed(shadow.high, 3)}, ${whole(shadow.rounds)} rounds in ${whole(shadow.starts)} starts): ${whole(shadow.beside.cpuUs)} µs at ${whole(shadow.beside.requestsPerSecond)} requests per second, without them ${whole(shadow.without.cpuUs)} µs at`,
      `${whole(shadow.without.requestsPerSecond)}. Streams of 16 tokens; ${whole(shadow.cores)} cores, load average ${fixed(shadow.loadAverage, 1)} with the benchmark, ${shadow.at}.`,
      `Target: less than 10 % at 1,000 requests per second; ${shadowVerdict(shadow)}. The time of shadow policies is limited to 2 % of a core at any rate.`,
      'Written by `node bench/shadow.mjs --out docs/evidence/results/shadow.json`.',
    ].join(' '),
    '',
  ].join('\n')
}

function liveLines({ cluster, command, conditions, cores, loadAverage, result }: LiveExperiment): string[] {
  const { base, policy, effects, words } = result.comparisons[0]!
  const streams = result.slots.reduce((sum, slot) => sum + slot.streams, 0)
  return [
    `\`${command}\` beside \`${cluster}\`, ${conditions}, ${result.at.slice(0, 10)}, on ${cores} cores shared with other work (load average ${fixed(loadAverage, 1)}): ${whole(streams)} streams measured.`,
    '',
    markdownTable(
      ['figure', base, policy, 'change, %', '95 % interval', 'blocks'],
      1,
      effects.map(({ figure, base: before, other, change, low, high, blocks }) => [
        figure,
        fixed(before, 2),
        fixed(other, 2),
        points(change),
        `${points(low)} to ${points(high)}`,
        whole(blocks),
      ]),
    ),
    '',
    `Its verdict: “${words}”${result.cautions.length === 0 ? '' : ` Cautions: ${result.cautions.join('; ')}.`}`,
    '',
  ]
}

/** In words, against the target of the page. */
function shadowVerdict({ ratio, high, beside, without }: ShadowFigures): string {
  if (Math.min(beside.requestsPerSecond, without.requestsPerSecond) < 1000)
    return 'that rate was not reached, so this does not show it'
  if (high < 1.1) return 'met'
  return ratio < 1.1 ? 'met by the mean, while the interval reaches above it' : 'missed'
}
