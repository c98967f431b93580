/** Section of docs/evidence/gpu.md that compares served changes with those that the simulator had predicted. */
import { cellText } from '../report/exhibit-cells.ts'
import { markdownTable } from '../report/markdown-table.ts'
import { fixed, percent } from '../report/numbers.ts'
import { LOAD_BALANCERS } from '../sim/compare.ts'
import type { Interval } from '../sim/confidence.ts'
import { BASE, changeOf, meanOf, policiesOf } from './paired.ts'
import { change, shortLoad, type ServedExperiment } from './policy-section.ts'
import { type PredictedRun, type Prediction, predictedRuns } from './prediction.ts'
import { completeRuns, type ServedRun } from './result-file.ts'

/** How far the simulated change may be from the served one, in points. */
const TOLERANCE_POINTS = 3

export interface HashedPrediction {
  readonly prediction: Prediction
  /** Of the file. */
  readonly sha256: string
}

/** By file name. */
export type Predictions = ReadonlyMap<string, HashedPrediction>

interface Compared {
  readonly load: string
  readonly policy: string
  readonly measure: string
  readonly isTpot: boolean
  readonly served: Interval
  readonly simulated: Interval
  readonly points: number
}

export function predictionSection(
  experiments: readonly ServedExperiment[],
  predictions: Predictions,
): string[] {
  const compared = experiments.flatMap(experiment => comparedIn(experiment, predictions))
  if (compared.length === 0) return []
  const gains = compared.filter(({ policy, isTpot }) => isTpot && !LOAD_BALANCERS.includes(policy))
  const within = gains.filter(one => Math.abs(one.points) <= TOLERANCE_POINTS).length
  const widest = gains.reduce((a, b) => (Math.abs(b.points) > Math.abs(a.points) ? b : a), compared[0]!)
  return [
    '## Served beside simulated',
    `The simulator had the profile of one engine alone, the recorded experts of the served engine, and the same requests at the same times; its decode workers share one GPU (\`--topology\` such as \`4D/4\`). Predictions were written before the policies ran. **${within} of ${gains.length} changes of TPOT are within ${TOLERANCE_POINTS} points of the served ones**; the largest difference is ${points(widest.points)} (${widest.policy}, ${widest.measure}, ${widest.load}).`,
    markdownTable(
      ['load', 'policy', 'change against jsq', 'GPU-served', 'simulated', 'difference in points'],
      3,
      compared.map(one => [
        one.load,
        one.policy,
        one.measure,
        change(one.served),
        change(one.simulated),
        points(one.points),
      ]),
    ),
    ...absolute(experiments, predictions),
  ]
}

const points = (value: number): string => cellText({ value, digits: 1, signed: true })

const MEASURES: readonly (readonly [string, (run: PredictedRun | ServedRun) => number])[] = [
  ['TPOT p50', run => run.tpotMs.p50],
  ['TPOT p99', run => run.tpotMs.p99],
  ['experts per step', run => run.together.experts],
]

function comparedIn(experiment: ServedExperiment, predictions: Predictions): Compared[] {
  const predicted = predictedFor(experiment, predictions)
  const runs = completeRuns(experiment)
  return policiesOf(runs)
    .filter(policy => policy !== BASE)
    .flatMap(policy =>
      MEASURES.flatMap(([measure, value]) => {
        const [served, simulated] = [changeOf(runs, policy, value), changeOf(predicted, policy, value)]
        if (served === undefined || simulated === undefined) return []
        return [
          {
            load: shortLoad(experiment),
            policy,
            measure,
            isTpot: measure.startsWith('TPOT'),
            served,
            simulated,
            points: 100 * (simulated.mean - served.mean),
          },
        ]
      }),
    )
}

/** The hash in the result shows that the file was there when the policies ran. */
function predictedFor({ name, served }: ServedExperiment, predictions: Predictions): PredictedRun[] {
  if (served.prediction === undefined) return []
  const { file, sha256 } = served.prediction
  const found = predictions.get(file)
  if (found === undefined) throw new Error(`${name}: its prediction ${file} is missing`)
  if (found.sha256 !== sha256) throw new Error(`${name}: its prediction ${file} has changed since it ran`)
  return predictedRuns(found.prediction, served.rate)
}

/** Times themselves, which the shared device has to explain. */
function absolute(experiments: readonly ServedExperiment[], predictions: Predictions): string[] {
  const rows = experiments.flatMap(experiment => {
    const predicted = predictedFor(experiment, predictions)
    const runs = completeRuns(experiment)
    return policiesOf(runs)
      .filter(policy => predicted.some(run => run.policy === policy))
      .map(policy => {
        const pair = (value: (run: PredictedRun | ServedRun) => number, digits: number) =>
          [meanOf(runs, policy, value), meanOf(predicted, policy, value)].map(mean => fixed(mean, digits))
        const ratio =
          meanOf(predicted, policy, run => run.tpotMs.p50) / meanOf(runs, policy, run => run.tpotMs.p50) - 1
        return [
          shortLoad(experiment),
          policy,
          ...pair(run => run.tpotMs.p50, 2),
          `${ratio > 0 ? '+' : ''}${percent(ratio, 1)}`,
          ...pair(run => run.together.batch, 1),
          ...pair(run => run.together.experts, 1),
        ]
      })
  })
  const head = [
    'load',
    'policy',
    'TPOT p50 ms, served',
    'simulated',
    'off by',
    'batch, served',
    'simulated',
    'experts, served',
    'simulated',
  ]
  return ['The times themselves:', markdownTable(head, 2, rows)]
}
