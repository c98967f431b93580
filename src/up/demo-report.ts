/** Results of `eldr demo`: a table, bars in the terminal, and an HTML page with a figure. */
import type { Exhibit, ExhibitReport } from '../report/exhibit.ts'
import { fixed, percent, whole } from '../report/numbers.ts'
import { bar, table } from '../report/table.ts'
import { type Terminal, wrapped } from '../report/terminal.ts'
import { differing, type DemoRun } from './demo.ts'

/** Conditions of the measurement. */
export interface DemoAbout {
  readonly topology: string
  readonly model: string
  /** True for a real model with real prompts; false for a replay. */
  readonly computed: boolean
  readonly trace: string
  readonly profile: string
  /** Provenance of the profile. */
  readonly profileSource: string
  readonly machine: { readonly cpu: string; readonly cores: number; readonly node: string }
  readonly rate: number
  readonly speed: number
  readonly requests: number
  readonly seed: number
  readonly version: string
}

export interface Change {
  /** Relative to the first policy: −0.08 is 8 % less. */
  readonly live: number
  readonly simulated: number
}

/** If steps take this much longer than the profile's, TPOT reflects the machine and not the policy. */
const LATE = 0.03
/** Allowed difference between live and simulated gains. */
const AGREEMENT = 0.02
const BAR_WIDTH = 40

export function changeOf(run: DemoRun, base: DemoRun, quantile: 'p50' | 'p99'): Change {
  return {
    live: run.tpotMs[quantile] / base.tpotMs[quantile] - 1,
    simulated: run.simulated.tpotMs[quantile] / base.simulated.tpotMs[quantile] - 1,
  }
}

const right = (title: string) => ({ title, align: 'right' as const })
const signed = (share: number) => `${share > 0 ? '+' : ''}${percent(share, 1).replaceAll('\u00a0', ' ')}`
const isLate = ({ late }: DemoRun) => late > LATE
/** Marks changes that are not valid measurements because steps of the run or of the baseline were late. */
const DOUBTFUL = ' ?'
export const isMeasured = (run: DemoRun, base: DemoRun) => !isLate(run) && !isLate(base)
const markOf = (run: DemoRun, base: DemoRun) => (isMeasured(run, base) ? '' : DOUBTFUL)
const isBase = (run: DemoRun, runs: readonly DemoRun[]) => run === runs[0]

export function demoTables(runs: readonly DemoRun[], about: DemoAbout, terminal: Terminal): string {
  const base = runs[0]!
  const columns = [
    { title: 'policy' },
    ...[
      'TPOT p50',
      'simulated',
      'change',
      'simulated',
      'TPOT p99',
      'change',
      'simulated',
      'experts',
      'simulated',
    ].map(right),
    { title: 'same output' },
  ]
  const rows = runs.map(run => {
    const { policy, tpotMs, activeExperts, simulated, outputs } = run
    const changes = (quantile: 'p50' | 'p99') => {
      if (isBase(run, runs)) return ['·', '·']
      const { live, simulated } = changeOf(run, base, quantile)
      return [`${signed(live)}${markOf(run, base)}`, signed(simulated)]
    }
    const same = differing(base.outputs, outputs).length === 0
    return [
      policy,
      fixed(tpotMs.p50, 2),
      fixed(simulated.tpotMs.p50, 2),
      ...changes('p50'),
      fixed(tpotMs.p99, 2),
      ...changes('p99'),
      fixed(activeExperts, 1),
      fixed(simulated.activeExperts, 1),
      same ? 'yes' : terminal.warn('no'),
    ]
  })
  return [
    `${terminal.bold('The same load under each policy')} ${terminal.dim(`(ms of profile time; changes relative to ${base.policy}; experts: distinct experts per layer and step)`)}`,
    table(columns, rows, terminal),
    '',
    bars(runs, terminal),
    '',
    ...[...verdicts(runs), ...remarks(runs, about), sourceLine(about)].map(line =>
      wrapped(line, terminal.width),
    ),
  ].join('\n')
}

function bars(runs: readonly DemoRun[], terminal: Terminal): string {
  const max = Math.max(...runs.map(({ tpotMs }) => tpotMs.p50))
  const name = Math.max(...runs.map(({ policy }) => policy.length))
  const lines = runs.map(run => {
    const { policy, tpotMs } = run
    const change = isBase(run, runs)
      ? ''
      : `  ${signed(changeOf(run, runs[0]!, 'p50').live)}${markOf(run, runs[0]!)}`
    return `  ${policy.padEnd(name)}  ${terminal.accent(bar(tpotMs.p50 / max, BAR_WIDTH).padEnd(BAR_WIDTH))} ${fixed(tpotMs.p50, 2)} ms${change}`
  })
  return [terminal.dim('  TPOT p50'), ...lines].join('\n')
}

export function verdicts(runs: readonly DemoRun[]): string[] {
  const base = runs[0]!
  const different = runs.reduce((sum, { outputs }) => sum + differing(base.outputs, outputs).length, 0)
  const others = runs.slice(1)
  const doubtful = others.filter(run => markOf(run, base) !== '').length
  const near = others.filter(run => Math.abs(off(changeOf(run, base, 'p50'))) <= AGREEMENT).length
  return [
    `Outputs identical: ${different === 0 ? 'yes' : 'no'} (${whole(base.outputs.size)} requests compared byte for byte under ${runs.length} policies).`,
    `Change of p50 TPOT within ${AGREEMENT * 100} points of the simulator’s: ${near} of ${others.length}${doubtful === 0 ? '' : ` (${doubtful} of them not valid: the machine was too busy)`}.`,
  ]
}

const off = ({ live, simulated }: Change) => live - simulated

/** Limits of the measurement. */
function remarks(runs: readonly DemoRun[], { speed }: DemoAbout): string[] {
  const late = runs.filter(({ figures }) => !figures.client.keptUp).map(({ policy }) => policy)
  const slow = runs.filter(isLate)
  return [
    ...(speed === 1
      ? []
      : [`The cluster ran at ${speed}× the speed of the profile; times shown are profile times.`]),
    ...(late.length === 0
      ? []
      : [
          `This machine was too slow under ${late.join(', ')}: requests were sent late. TPOT does not include that delay, but the cluster may have been late too.`,
        ]),
    ...(slow.length === 0
      ? []
      : [
          `Machine too busy: not a valid measurement. Decode steps took longer than in the profile (${slow.map(({ policy, late: share }) => `${policy} ${percent(share, 0)}`).join(', ')}). TPOT includes that delay, so changes marked ? say nothing about the policies. Use an idle machine or a lower --speed.`,
        ]),
  ]
}

const sourceOf = ({ model, computed, trace }: DemoAbout) =>
  computed ? `${model} computed on the prompts of ${trace}` : `${model} replayed from ${trace}`

function sourceLine(about: DemoAbout): string {
  const { topology, profile, machine, rate, requests, seed, version } = about
  return `Measured on ${machine.cores} cores of ${machine.cpu}, Node ${machine.node}, eldr ${version}: ${topology}, ${sourceOf(about)}, step times from profile ${profile}, ${rate} requests per second, ${whole(requests)} requests per policy, seed ${seed}.`
}

export function demoReport(runs: readonly DemoRun[], about: DemoAbout): ExhibitReport {
  const { machine } = about
  return {
    title: `The same load under ${runs.map(({ policy }) => policy).join(', ')}`,
    intro: `Real processes on one machine: prefill and decode workers ${about.computed ? 'that compute a small mixture-of-experts model' : 'that replay the experts of a recorded model'}, the gateway, and a client that sends the same requests at the same times under each policy.`,
    facts: [
      { term: 'machine', value: `${machine.cores} cores of ${machine.cpu}, Node ${machine.node}` },
      { term: 'cluster', value: about.topology },
      { term: 'model', value: sourceOf(about) },
      { term: 'profile', value: `${about.profile}: ${about.profileSource}` },
      {
        term: 'load',
        value: `${about.rate} requests per second, ${whole(about.requests)} per policy, seed ${about.seed}`,
      },
      ...(about.speed === 1
        ? []
        : [{ term: 'speed', value: `${about.speed}× the profile’s; times shown are profile times` }]),
      { term: 'eldr', value: about.version },
    ],
    sections: [{ title: 'Live and simulated', exhibits: [exhibit(runs, about)] }],
    footer: 'Generated by eldr demo.',
  }
}

function exhibit(runs: readonly DemoRun[], about: DemoAbout): Exhibit {
  const base = runs[0]!
  const ms = (value: number) => ({ value, digits: 2, unit: 'ms' })
  const change = (value: number) => ({ value: value * 100, digits: 1, unit: '%', signed: true as const })
  const bars = (
    title: string,
    unit: string,
    value: (run: DemoRun) => readonly [live: number, simulated: number],
  ) => ({
    kind: 'bars' as const,
    title,
    x: unit,
    groups: runs.map(run => {
      const [live, simulated] = value(run)
      const digits = 2
      return {
        heading: run.policy,
        bars: [
          { label: 'live', value: live, digits },
          { label: 'simulated', value: simulated, digits, hollow: true },
        ],
      }
    }),
  })
  return {
    id: 'demo',
    title: 'Time per output token and active experts',
    finding: verdicts(runs).join(' '),
    notes: remarks(runs, about),
    source: sourceLine(about),
    charts: [
      bars('TPOT p50', 'ms', run => [run.tpotMs.p50, run.simulated.tpotMs.p50]),
      bars('Active experts', 'distinct experts per layer and step', run => [
        run.activeExperts,
        run.simulated.activeExperts,
      ]),
    ],
    tables: [
      {
        columns: [
          'policy',
          'TPOT p50',
          'change',
          'simulated',
          'TPOT p99',
          'change',
          'simulated',
          'experts',
          'simulated',
          'same output',
        ],
        rows: runs.map(run => {
          const changes = (quantile: 'p50' | 'p99') => {
            if (isBase(run, runs)) return [null, null]
            const { live, simulated } = changeOf(run, base, quantile)
            const mark = markOf(run, base)
            return [mark === '' ? change(live) : `${signed(live)}${mark}`, change(simulated)]
          }
          const experts = [run.activeExperts, run.simulated.activeExperts].map(value => ({
            value,
            digits: 1,
          }))
          const same = differing(base.outputs, run.outputs).length === 0 ? 'yes' : 'no'
          return [
            run.policy,
            ms(run.tpotMs.p50),
            ...changes('p50'),
            ms(run.tpotMs.p99),
            ...changes('p99'),
            ...experts,
            same,
          ]
        }),
      },
    ],
  }
}
