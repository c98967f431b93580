/** What an experiment has shown, as a table and in words. */
import { fixed, percent, whole } from '../report/numbers.ts'
import { table } from '../report/table.ts'
import { type Terminal, wrapped } from '../report/terminal.ts'
import {
  type Effect,
  effectsOf,
  FIGURE_NAMES,
  isCounted,
  isFound,
  isWorse,
  type MeasuredSlot,
  type Outcome,
  outcomeOf,
} from '../sim/switchback-analysis.ts'
import type { ExperimentProgress } from './experiment.ts'

export interface Comparison {
  readonly base: string
  readonly policy: string
  readonly outcome: Outcome
  readonly effects: readonly Effect[]
  readonly words: string
}

/** Fewer blocks give wide intervals. */
const ENOUGH_BLOCKS = 6
/** A slot's p99 needs this many streams. */
const ENOUGH_STREAMS = 100

/** Every policy against the first. */
export function comparisonsOf(policies: readonly string[], slots: readonly MeasuredSlot[]): Comparison[] {
  const [base = '', ...others] = policies
  return others.map(policy => {
    const effects = effectsOf(slots, policies.length, base, policy)
    const outcome = outcomeOf(effects)
    return { base, policy, outcome, effects, words: wordsFor(policy, base, outcome, effects) }
  })
}

const VERDICT: Readonly<Record<Outcome, (policy: string, base: string) => string>> = {
  better: (policy, base) => `${policy} is better than ${base}`,
  worse: (policy, base) => `${policy} is worse than ${base}`,
  mixed: (policy, base) => `Mixed: ${policy} is not simply better or worse than ${base}`,
  undecided: (policy, base) => `No difference in TPOT between ${policy} and ${base} was found`,
  unmeasured: (policy, base) => `TPOT of ${policy} and ${base} was not measured, so there is no verdict`,
}

function wordsFor(policy: string, base: string, outcome: Outcome, effects: readonly Effect[]): string {
  const [found, open] = [effects.filter(isFound), effects.filter(effect => !isFound(effect))]
  const sentences = [
    `${VERDICT[outcome](policy, base)}.`,
    ...(outcome === 'mixed' ? [mixedWords(effects)] : []),
    ...found.map(
      effect =>
        `${effect.figure} is ${share(Math.abs(effect.change))} ${effect.change < 0 ? 'lower' : 'higher'} (95 % interval ${interval(effect)}${isCounted(effect) ? '' : '; too uncertain for a verdict on several figures'}).`,
    ),
    ...(open.length === 0
      ? []
      : [
          `Not distinguishable from chance: ${open.map(effect => `${effect.figure} (${interval(effect)})`).join(', ')}.`,
        ]),
  ]
  return sentences.join(' ')
}

function mixedWords(effects: readonly Effect[]): string {
  const counted = effects.filter(isCounted)
  const names = (chosen: readonly Effect[]) => chosen.map(({ figure }) => figure).join(', ')
  const [worse, better] = [counted.filter(isWorse), counted.filter(effect => !isWorse(effect))]
  return better.length === 0
    ? `No difference in TPOT was found, but it is worse in ${names(worse)}.`
    : `It is better in ${names(better)} and worse in ${names(worse)}.`
}

const share = (value: number) => spaced(percent(value, 1))
const signed = (value: number) => `${value < 0 ? '−' : '+'}${share(Math.abs(value))}`
const interval = ({ low, high }: Effect) => `${signed(low)} to ${signed(high)}`
const spaced = (words: string) => words.replaceAll('\u00a0', ' ')

/** Reasons to distrust the intervals. */
export function cautionsOf(comparisons: readonly Comparison[], slots: readonly MeasuredSlot[]): string[] {
  const effects = comparisons.flatMap(comparison => comparison.effects)
  const missing = FIGURE_NAMES.filter(name =>
    comparisons.some(comparison => !comparison.effects.some(({ figure }) => figure === name)),
  )
  const blocks = Math.min(...effects.map(effect => effect.blocks))
  const streams = Math.min(...slots.map(slot => slot.streams))
  const dependent = effects.filter(({ lag1, blocks: count }) => lag1 > 2 / Math.sqrt(count))
  if (effects.length === 0) return ['fewer than two blocks have traffic of all policies: nothing is compared']
  return [
    ...missing.map(
      name =>
        `${name} was not measured in two blocks or more: only streamed responses have times${name.startsWith('TPOT') ? ', and TPOT needs two tokens' : ''}`,
    ),
    ...(blocks < ENOUGH_BLOCKS ? [`${blocks} blocks of slots are few: intervals are wide`] : []),
    ...(streams < ENOUGH_STREAMS && missing.length < FIGURE_NAMES.length - 1
      ? [`a slot has ${streams} streams only: its p99 is close to its maximum; use longer slots`]
      : []),
    ...(dependent.length > 0
      ? [
          `differences of neighbouring blocks are correlated (${dependent.map(({ figure }) => figure).join(', ')}): use longer slots`,
        ]
      : []),
  ]
}

const right = (title: string) => ({ title, align: 'right' as const })

export function experimentTables(
  comparisons: readonly Comparison[],
  cautions: readonly string[],
  terminal: Terminal,
): string {
  const parts = comparisons.map(({ base, policy, effects, words }) =>
    [
      table(
        [{ title: '' }, right(base), right(policy), right('change'), right('95 % interval'), right('blocks')],
        effects.map(effect => [
          effect.figure.startsWith('T') ? `${effect.figure}, ms` : effect.figure,
          fixed(effect.base, 2),
          fixed(effect.other, 2),
          signed(effect.change),
          interval(effect),
          whole(effect.blocks),
        ]),
        terminal,
      ),
      `  ${wrapped(terminal.bold(words), terminal.width - 2, 2)}`,
    ].join('\n\n'),
  )
  const warnings = cautions.map(caution => `  ${terminal.warn('caution')} ${caution}`)
  return [...parts, ...(warnings.length === 0 ? [] : [warnings.join('\n')])].join('\n\n')
}

/** On a terminal one overwritten line, otherwise a line per slot. */
export function experimentWatch(terminal: Terminal) {
  let shown = 0
  return {
    progress({ slot, slots, policy, slotMs, leftMs, last }: ExperimentProgress): void {
      if (!terminal.live && slot === shown) return
      shown = slot
      const leftSeconds = ((slots - slot) * slotMs + leftMs) / 1000
      const parts = [
        `slot ${slot}/${slots}`,
        policy,
        `${whole(leftSeconds)} s left`,
        ...(last === undefined || last.tpotMs.p50 === null
          ? []
          : [
              `last slot: ${last.policy} TPOT p50 ${fixed(last.tpotMs.p50, 2)} ms, ${whole(last.streams)} streams`,
            ]),
      ]
      const line = `  experiment … ${parts.join(' · ')}`
      terminal.write(
        terminal.live ? `\r\u001b[2K${line.slice(0, Math.max(0, terminal.width - 1))}` : `${line}\n`,
      )
    },
    clear(): void {
      if (terminal.live) terminal.write('\r\u001b[2K')
    },
  }
}
