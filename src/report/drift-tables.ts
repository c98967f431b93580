/** Drift scenarios as terminal tables: one per scenario, with changes against the baseline. */
import { BASELINE, type DriftFigures, verdictOf } from '../sim/drift/bound.ts'
import type { DriftOptions } from '../sim/drift/drift-runs.ts'
import { boundInWords, changesText, policyRows, worstText } from './drift-words.ts'
import { fixed, many } from './numbers.ts'
import { rateText } from './simulation-measures.ts'
import { type Column, table } from './table.ts'
import { printable, type Terminal, wrapped } from './terminal.ts'

const MAX_COLUMNS = 120

export function driftTables(
  options: DriftOptions,
  figures: readonly DriftFigures[],
  seconds: number,
  terminal: Terminal,
): string {
  const { scenarios, traffics, topology, profile, seeds } = options
  const narrow = { ...terminal, width: Math.min(terminal.width, MAX_COLUMNS) }
  const names = traffics.map(({ name, evaluation }) => `${name} (${evaluation})`).join(', ')
  const conditions = `Simulated: ${topology}, profile ${profile}, ${names}, ${many(seeds.length, 'seed')}. Changes of TPOT p50 / p99 against ${BASELINE}, paired by seed, ± 95 %. ${boundInWords()}`
  return [
    wrapped(terminal.dim(printable(conditions)), narrow.width),
    ...scenarios.map(scenario => {
      const own = figures.filter(one => one.scenario === scenario.name)
      const title = `${terminal.bold(printable(scenario.name))} ${terminal.dim(printable(scenario.about))}`
      return `${title}\n${scenarioTable(options, own, narrow)}`
    }),
    ...(scenarios.length > 1 ? [summary(options, figures, narrow)] : []),
    terminal.dim(`took ${fixed(seconds, 1)} s`),
  ].join('\n\n')
}

function scenarioTable(
  { rates }: DriftOptions,
  figures: readonly DriftFigures[],
  terminal: Terminal,
): string {
  const columns: Column[] = [
    { title: 'traffic and policy' },
    ...rates.map(rate => ({ title: `${rateText(rate)}/s`, align: 'right' as const })),
    { title: 'bound' },
  ]
  const rows = policyRows(figures).map(own => [
    `${own[0]!.traffic} ${own[0]!.policy}`,
    ...own.map(one => spaced(changesText(one))),
    verdictOf(own) ?? '',
  ])
  return table(columns, rows, terminal)
}

/** The worst cell of each policy in each scenario. */
function summary(
  { scenarios, policies }: DriftOptions,
  figures: readonly DriftFigures[],
  terminal: Terminal,
) {
  const others = policies.filter(policy => policy !== BASELINE)
  const columns: Column[] = [
    { title: 'scenario' },
    ...others.map(title => ({ title, align: 'right' as const })),
  ]
  const rows = scenarios.map(({ name }) => [
    name,
    ...others.map(policy =>
      spaced(worstText(figures.filter(one => one.scenario === name && one.policy === policy))),
    ),
  ])
  const title = `${terminal.bold('worst change of each policy')} ${terminal.dim('largest p50 / largest p99 over traffic and rates; ! misses the bound')}`
  return `${title}\n${table(columns, rows, terminal)}`
}

/** Plain spaces, so that terminal output can be searched and cut. */
const spaced = (words: string) => words.replaceAll('\u00a0', ' ')
