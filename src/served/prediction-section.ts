/**
 * Section of docs/evidence/gpu.md that compares served changes with simulated ones: predictions that were
 * written before the policies ran, and simulations made afterwards with the profile as it is fitted now.
 */
import type { CostProfile } from '../cost/profile.ts'
import { cellText } from '../report/exhibit-cells.ts'
import { markdownTable } from '../report/markdown-table.ts'
import { fixed, percent } from '../report/numbers.ts'
import { BASE, changeOf, meanOf, policiesOf } from './paired.ts'
import { change, shortLoad, type ServedExperiment } from './policy-section.ts'
import {
  type Both,
  type Compared,
  gainsOf,
  knownPolicies,
  longSteps,
  MEDIAN,
  type OfCompared,
  paces,
  repeated,
  type Simulated,
  TAIL,
  TOLERANCE_POINTS,
} from './prediction-misses.ts'
import { type PredictedRun, type Prediction, predictedRuns } from './prediction.ts'
import { completeRuns, type ServedRun } from './result-file.ts'

export interface HashedPrediction {
  readonly prediction: Prediction
  /** Of the file. */
  readonly sha256: string
}

/** By file name. */
export type Predictions = ReadonlyMap<string, HashedPrediction>

export interface SimulationEvidence {
  readonly predictions: Predictions
  /** Profile that the predictions were made with; absent if it was not kept. */
  readonly predictedWith?: CostProfile
  /** Of the same engine, as it is fitted now. */
  readonly present?: CostProfile
}

export function predictionSection(
  experiments: readonly ServedExperiment[],
  evidence: SimulationEvidence,
): string[] {
  const all = experiments.map(experiment => ({
    ...bothOf(experiment, evidence.predictions),
    known: knownPolicies(experiment, experiments),
  }))
  const first = all.filter(({ after }) => after.length > 0)
  const later = all.filter(({ after }) => after.length === 0)
  const [firstCompared, laterCompared] = [first.flatMap(comparedIn), later.flatMap(comparedIn)]
  if (firstCompared.length + laterCompared.length === 0) return []
  return [
    '## Served beside simulated',
    'The simulator had the profile of one engine alone, the recorded experts of the served engine, and the same requests at the same times; its decode workers share one GPU (`--topology` such as `4D/4`). *Difference* is simulated minus served, in points. Predictions were made before the policies ran; the results name the hashes of their files.',
    ...(laterCompared.length === 0
      ? []
      : [
          [
            `With the present profile: ${verdict(laterCompared, one => one.before)}`,
            ...repeated(later, laterCompared),
            ...overall(laterCompared, firstCompared),
          ].join(' '),
          ...longSteps(later, laterCompared),
          ...paces(later, laterCompared),
          changeTable(laterCompared),
          ...absolute(later),
        ]),
    ...(firstCompared.length === 0
      ? []
      : [
          '### The first predictions, with a poor profile',
          `**Predicted before the runs.** ${verdict(firstCompared, one => one.before)}`,
          `**Simulated afterwards, with the corrected fit.** ${correction(evidence)}${verdict(firstCompared, one => one.after)}`,
          changeTable(firstCompared),
          ...absolute(first),
        ]),
  ]
}

function changeTable(compared: readonly Compared[]): string {
  const again = compared.some(({ after }) => after !== undefined)
  return markdownTable(
    [
      'load',
      'policy',
      'change against jsq',
      'GPU-served',
      'predicted',
      'difference',
      ...(again ? ['simulated afterwards', 'difference'] : []),
    ],
    3,
    compared.map(one => [
      one.load,
      one.policy,
      one.measure,
      change(one.served),
      ...simulatedCells(one.before),
      ...(again ? simulatedCells(one.after) : []),
    ]),
  )
}

const points = (value: number): string => cellText({ value, digits: 1, signed: true })
const simulatedCells = (one: Simulated | undefined): string[] =>
  one === undefined ? ['·', '·'] : [change(one.change), points(one.points)]

function verdict(compared: readonly Compared[], of: OfCompared): string {
  const gains = gainsOf(compared, of)
  if (gains.length === 0) return ''
  const missed = gains.filter(one => Math.abs(one.points) > TOLERANCE_POINTS)
  const unclear = missed.filter(({ served, points }) => Math.abs(points) <= 100 * (served.half || 0)).length
  const within = gains.length - missed.length
  const widest = gains.reduce((a, b) => (Math.abs(b.points) > Math.abs(a.points) ? b : a))
  return `**${within} of ${gains.length} changes of TPOT are within ${TOLERANCE_POINTS} points of the served ones**; the largest difference is ${points(widest.points)} (${widest.policy}, ${widest.measure}, ${widest.load}).${unclear === 0 ? '' : ` In ${unclear === missed.length ? `the other ${unclear}` : `${unclear} of the other ${missed.length}`} the simulated change is within the served interval.`}`
}

/** All predictions that were made before their runs, whatever their profile. */
function overall(later: readonly Compared[], first: readonly Compared[]): string[] {
  const counts = (compared: readonly Compared[]) => {
    const gains = gainsOf(compared, one => one.before)
    return {
      within: gains.filter(one => Math.abs(one.points) <= TOLERANCE_POINTS).length,
      all: gains.length,
    }
  }
  const [late, early] = [counts(later), counts(first)]
  if (late.all === 0 || early.all === 0) return []
  return [
    `The first predictions, with a poor profile (below): **${early.within} of ${early.all}**. Over all: **${late.within + early.within} of ${late.all + early.all}**.`,
  ]
}

/** What was wrong with the profile of the predictions, and what was not used to correct it. */
function correction({ predictedWith, present }: SimulationEvidence): string {
  if (predictedWith === undefined || present === undefined) return ''
  const expert = ({ decode }: CostProfile) => fixed(decode.perActiveExpertUs, 1)
  const noise = ({ decode }: CostProfile) => fixed(meanFactor(decode.noise?.factors ?? [1]), 2)
  const host = ({ decode }: CostProfile) =>
    decode.host === undefined ? 'no host part' : `a host part of ${fixed(decode.host.baseUs / 1000, 1)} ms`
  return `The predictions had a poor profile. It was fitted by least squares, and followed decode steps that ended late because the prefill of a next request ran on the same engine. It had ${expert(predictedWith)} µs per expert and layer, ${host(predictedWith)}, and the delays in its noise (mean factor ${noise(predictedWith)}): experts were too cheap and steps too long. The fit now takes least absolute deviations over the steps of a full batch: ${expert(present)} µs, ${host(present)}, mean factor ${noise(present)}. It uses the steps of one engine alone and nothing of the policies' runs, but those had been seen by then: this is a check of the simulator, not a prediction. The served \`union\` weighed experts by the profile of the predictions, the simulated one by the corrected profile. `
}

/** Mean of what is drawn: factors are interpolated between neighbours. */
function meanFactor(factors: readonly number[]): number {
  if (factors.length === 1) return factors[0]!
  const sum = factors.slice(1).reduce((total, factor, i) => total + (factor + factors[i]!) / 2, 0)
  return sum / (factors.length - 1)
}

const MEASURES: readonly (readonly [string, (run: PredictedRun | ServedRun) => number])[] = [
  [MEDIAN, run => run.tpotMs.p50],
  [TAIL, run => run.tpotMs.p99],
  ['experts per step', run => run.together.experts],
]

function comparedIn({ load, runs, before, after }: Both): Compared[] {
  return policiesOf(runs)
    .filter(policy => policy !== BASE)
    .flatMap(policy =>
      MEASURES.flatMap(([measure, value]) => {
        const served = changeOf(runs, policy, value)
        if (served === undefined) return []
        const simulated = (of: readonly PredictedRun[]): Simulated | undefined => {
          const interval = changeOf(of, policy, value)
          return interval && { change: interval, points: 100 * (interval.mean - served.mean) }
        }
        const [predicted, again] = [simulated(before), simulated(after)]
        if (predicted === undefined) return []
        const isTpot = measure.startsWith('TPOT')
        return [{ load, policy, measure, isTpot, served, before: predicted, after: again }]
      }),
    )
}

/** The hash in the result shows that the prediction was there when the policies ran. */
function bothOf(experiment: ServedExperiment, predictions: Predictions): Omit<Both, 'known'> {
  const { name, served } = experiment
  const [load, runs] = [shortLoad(experiment), completeRuns(experiment)]
  if (served.prediction === undefined) return { load, runs, before: [], after: [] }
  const { file, sha256 } = served.prediction
  const found = predictions.get(file)
  if (found === undefined) throw new Error(`${name}: its prediction ${file} is missing`)
  if (found.sha256 !== sha256) throw new Error(`${name}: its prediction ${file} has changed since it ran`)
  const again = predictions.get(`simulated-${name}.json`)
  return {
    load,
    runs,
    before: predictedRuns(found.prediction, served.rate),
    after: again === undefined ? [] : predictedRuns(again.prediction, served.rate),
  }
}

/** Times themselves, which the shared device has to explain. */
function absolute(all: readonly Both[]): string[] {
  const again = all.some(({ after }) => after.length > 0)
  const rows = all.flatMap(({ load, runs, before, after }) =>
    policiesOf(runs)
      .filter(policy => before.some(run => run.policy === policy))
      .map(policy => {
        const simulated = again ? [before, after] : [before]
        const means = (value: (run: PredictedRun | ServedRun) => number) => [
          meanOf(runs, policy, value),
          ...simulated.map(of => meanOf(of, policy, value)),
        ]
        const [servedMs, ...simulatedMs] = means(run => run.tpotMs.p50)
        const off = (ms: number) =>
          `${fixed(ms, 2)} (${ms > servedMs! ? '+' : ''}${percent(ms / servedMs! - 1)})`
        const list = (value: (run: PredictedRun | ServedRun) => number) =>
          means(value)
            .map(mean => fixed(mean, 1))
            .join(' / ')
        return [
          load,
          policy,
          fixed(servedMs!, 2),
          ...simulatedMs.map(off),
          list(run => run.together.batch),
          list(run => run.together.experts),
        ]
      }),
  )
  const order = again ? 'served / predicted / afterwards' : 'served / predicted'
  const head = [
    'load',
    'policy',
    'TPOT p50 ms, served',
    'predicted',
    ...(again ? ['simulated afterwards'] : []),
    `batch: ${order}`,
    `experts: ${order}`,
  ]
  return ['The times themselves:', markdownTable(head, 2, rows)]
}
