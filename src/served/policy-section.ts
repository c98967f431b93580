/** Section of docs/evidence/gpu.md on the policies: what was served. */
import { cellText } from '../report/exhibit-cells.ts'
import { markdownTable } from '../report/markdown-table.ts'
import { fixed, many, percent } from '../report/numbers.ts'
import { changeText } from '../report/simulation-measures.ts'
import type { Interval } from '../sim/confidence.ts'
import { median } from './capture-numbers.ts'
import { BASE, changeOf, expertsAtEqualBatch, meanOf, policiesOf } from './paired.ts'
import { completeRuns, RENAMED_AT, type ResultOf, type ServedRun } from './result-file.ts'
import { quantile } from './step-fit.ts'

export type ServedExperiment = ResultOf<'served'>

export const change = (interval: Interval | undefined) =>
  interval === undefined ? '·' : cellText(changeText(interval))

/** `4 decode engines, 17 requests per second` */
export function loadInWords({ served: { decoders, rate, targetBatch } }: ServedExperiment): string {
  const batch = targetBatch === undefined ? '' : `, batches of about ${targetBatch}`
  return `${many(decoders, 'decode engine')}, ${fixed(rate, Number.isInteger(rate) ? 0 : 1)} requests per second${batch}`
}

/** `4 engines, 17/s`, for a column. */
export function shortLoad({ name, served: { decoders, rate } }: ServedExperiment): string {
  return `${many(decoders, 'engine')}, ${rate}/s${labelOf(name)}`
}

/** Tells apart results of the same load: `--label` of the step. */
function labelOf(name: string): string {
  const label = /^served-k\d+-b\d+-(.+)$/.exec(name)?.[1]
  return label === undefined ? '' : `, ${label}`
}

export function policySection(experiments: readonly ServedExperiment[]): string[] {
  if (experiments.length === 0) return []
  return [
    '## TPOT by policy, GPU-served',
    'Policies took turns, round by round, each with the same requests at the same times. Times and counts are means over the rounds; changes are against jsq of the same round, mean ± 95 % interval over the rounds. *Experts* are the distinct experts of a step, mean over the layers, as the plugin counts them. `band` is the paper’s rule. *Guarded* runs have `eldr` too, which is the paper’s rule with a bound on harm, from before its price of load rose in small batches (at a batch of 10 by 30 %); the others were run before it was built.',
    ...(notes(experiments).length === 0 ? [] : [notes(experiments).join(' ')]),
    ...experiments.flatMap(experimentBlocks),
  ]
}

/** What a reader of the tables must know of these runs. */
function notes(experiments: readonly ServedExperiment[]): string[] {
  return [
    ...(experiments.some(({ served }) => served.stepCost !== 'learnt')
      ? [
          'In these runs `union` weighs experts by a fixed profile; the `union` that ships learns the costs of a step from its streams by default (`routing.stepCost: learnt`), which has not been run on a GPU.',
        ]
      : []),
    ...(experiments.some(({ conditions }) => conditions.date < RENAMED_AT)
      ? [`Data files from before ${RENAMED_AT.slice(0, 16).replace('T', ' ')} UTC call \`band\` \`eldr\`.`]
      : []),
    ...slowGaps(experiments),
  ]
}

/** A share of gaps above this one is seen at p99. */
const SEEN_AT_P99 = 0.01

/** Why p99 of ITL is about twice its median: events that carry two tokens come after two steps. */
function slowGaps(experiments: readonly ServedExperiment[]): string[] {
  const shares = experiments.flatMap(experiment => {
    const runs = completeRuns(experiment).filter(({ perRequest }) => perRequest !== undefined)
    if (runs.length === 0) return []
    const gaps = runs.reduce((sum, { itlMs }) => sum + itlMs.count, 0)
    const tokens = runs.reduce(
      (sum, { perRequest }) => sum + perRequest!.outputTokens.reduce((all, count) => all + count - 1, 0),
      0,
    )
    return [1 - gaps / tokens]
  })
  if (shares.length === 0 || Math.min(...shares) < SEEN_AT_P99) return []
  return [
    `ITL p99 is about twice p50 because some streamed events carry two tokens and come after two steps: the streams have ${range(shares)} fewer gaps between events than between tokens, so p99 is such a gap.${longSteps(experiments)} The likely cause is text that vLLM holds back until a character is complete.`,
  ]
}

/** That the engines' own steps are not as long. */
function longSteps(experiments: readonly ServedExperiment[]): string {
  const relative = experiments.flatMap(completeRuns).flatMap(({ steps }) => {
    const middle = median(steps?.ms ?? [])
    return steps?.ms.map(ms => ms / middle) ?? []
  })
  if (relative.length === 0) return ''
  return ` Decode steps are not the reason: at p99 they take ${fixed(quantile(Float64Array.from(relative).sort(), 0.99), 1)} times the median of their run.`
}

function range(shares: readonly number[]): string {
  const [low, high] = [Math.min(...shares), Math.max(...shares)].map(share => percent(share, 1))
  return low === high ? low! : `${fixed(100 * Math.min(...shares), 1)} to ${high}`
}

function experimentBlocks(experiment: ServedExperiment): string[] {
  const runs = completeRuns(experiment)
  const rows = policiesOf(runs).map(policy => {
    const mean = (value: (run: ServedRun) => number, digits: number) =>
      fixed(meanOf(runs, policy, value), digits)
    const against = (value: (run: ServedRun) => number) =>
      change(policy === BASE ? undefined : changeOf(runs, policy, value))
    const equal = policy === BASE ? undefined : expertsAtEqualBatch(runs, policy)
    return [
      policy,
      mean(run => run.tpotMs.p50, 2),
      against(run => run.tpotMs.p50),
      mean(run => run.tpotMs.p99, 2),
      against(run => run.tpotMs.p99),
      mean(run => run.itlMs.p50, 2),
      mean(run => run.itlMs.p99, 2),
      mean(run => run.ttftMs.p50, 0),
      mean(run => run.together.batch, 1),
      mean(run => run.together.experts, 1),
      against(run => run.together.experts),
      equal === undefined ? '·' : cellText({ value: 100 * equal, digits: 1, unit: '%', signed: true }),
    ]
  })
  const head = [
    'policy',
    'TPOT p50 ms',
    'change',
    'TPOT p99 ms',
    'change',
    'ITL p50 ms',
    'ITL p99 ms',
    'TTFT p50 ms',
    'batch',
    'experts',
    'change',
    'at equal batch',
  ]
  return [
    `### ${loadInWords(experiment)}${labelOf(experiment.name)}`,
    markdownTable(head, 1, rows),
    remarks(experiment),
  ]
}

function remarks({ name, model, served }: ServedExperiment): string {
  const runs = served.runs.filter((run): run is ServedRun => !('failed' in run))
  const failed = served.runs.length - runs.length
  const lost = runs.reduce((sum, run) => sum + run.requests.failed, 0)
  const behind = runs.filter(({ client }) => client?.keptUp === false).length
  const rounds = new Set(runs.map(({ round }) => round)).size
  const counted = runs.reduce((sum, run) => sum + run.requests.counted, 0)
  const { outputTokens: [low, high] = [] } = served
  return [
    `${model.name}, ${many(rounds, 'round')}, ${many(counted, 'counted request')}, ${lost === 0 ? 'none' : fixed(lost, 0)} failed.`,
    ...(low === undefined
      ? []
      : [
          `${low} to ${high} output tokens${served.prompts === undefined ? '' : `, prompts of \`${served.prompts}\``}.`,
        ]),
    ...(served.prefillModel === undefined ? [] : [`Prefill: ${served.prefillModel}.`]),
    ...(failed === 0 ? [] : [`${many(failed, 'run')} failed and ${failed === 1 ? 'is' : 'are'} left out.`]),
    ...(behind === 0
      ? []
      : [`The load client fell behind in ${fixed(behind, 0)} of ${many(runs.length, 'run')}.`]),
    `Data: \`bench/gpu/serving/results/${name}.json.br\`.`,
  ].join(' ')
}
