/** Section of docs/evidence/gpu.md on the time of a step against its distinct experts, and its figure. */
import { type LinearFit, leastSquares } from '../math/least-squares.ts'
import { figureOf } from '../report/figure.ts'
import { markdownTable } from '../report/markdown-table.ts'
import { fixed, many, whole } from '../report/numbers.ts'
import { type ScatterPoint, scatterPlot, thinned } from '../report/scatter-plot.ts'
import { studentT } from '../sim/confidence.ts'
import { completeRuns, type ResultOf, type ServedResult, type ServedSteps } from './result-file.ts'

export const STEP_FIGURE = 'gpu-steps.svg'
/** Points in the figure; the regression has all of them. */
const MAX_POINTS = 2_000

/** Recorded steps under one condition, with their line. */
interface StepGroup {
  readonly label: string
  readonly model: ServedResult['model']
  readonly engines: number
  readonly experts: readonly number[]
  readonly ms: readonly number[]
  readonly fit: LinearFit
}

export function stepSection(results: readonly ServedResult[]): string[] {
  const groups = stepGroups(results)
  if (groups.length === 0) return []
  return [
    '## Step time and distinct experts, GPU-served',
    `![Time of a decode step by distinct experts](../pictures/${STEP_FIGURE})`,
    'Steps that vLLM ran, from the start of one to the start of the next. The line is an ordinary regression over all recorded steps; the figure shows some of them. *Bandwidth*: bytes of one more expert in every layer of every engine, divided by the time that it adds to a step.',
    markdownTable(
      ['engines on the GPU', 'steps', 'ms per expert', 'ms at 0 experts', 'r²', 'bandwidth TB/s'],
      1,
      groups.map(({ label, engines, model, fit }) => {
        const [intercept, slope] = [fit.coefficients[0]!, fit.coefficients[1]!]
        const t = studentT(fit.count - 2)
        const bytes = engines * model.layers * (model.bytesPerExpert ?? NaN)
        return [
          label,
          whole(fit.count),
          `${fixed(slope, 4)} ± ${fixed(t * fit.errors[1]!, 4)}`,
          `${fixed(intercept, 2)} ± ${fixed(t * fit.errors[0]!, 2)}`,
          fixed(fit.r2, 2),
          fixed(bytes / (slope * 1e-3) / 1e12, 2),
        ]
      }),
    ),
  ]
}

/** Undefined if no steps were recorded. */
export function stepFigure(results: readonly ServedResult[]): string | undefined {
  const groups = stepGroups(results)
  if (groups.length === 0) return undefined
  const title = 'Time of a decode step by distinct experts'
  const description = groups
    .map(({ label, fit }) => `${label}: ${fixed(fit.coefficients[1], 3)} ms per expert.`)
    .join(' ')
  const points: ScatterPoint[] = groups.flatMap(({ experts, ms }, group) =>
    experts.map((x, i) => ({ x, y: ms[i]!, group })),
  )
  const body = scatterPlot({
    id: 'gpu-steps',
    title,
    description,
    x: { label: 'distinct experts of a step, mean over the layers' },
    y: { label: 'time of the step, ms' },
    points: thinned(points, MAX_POINTS),
    lines: groups.map(({ experts, fit }, group) => {
      const [low, high] = [minOf(experts), maxOf(experts)]
      const at = (x: number) => ({ x, y: fit.coefficients[0]! + fit.coefficients[1]! * x })
      return { group, from: at(low), to: at(high) }
    }),
  })
  return figureOf({ title, description, legend: groups.map(({ label }) => label), body })
}

/** One engine alone first, then several, in ascending number. */
function stepGroups(results: readonly ServedResult[]): StepGroup[] {
  const served = results
    .filter((result): result is ResultOf<'served'> => result.kind === 'served')
    .flatMap(result =>
      completeRuns(result).flatMap(({ steps }) =>
        steps === undefined ? [] : [{ model: result.model, engines: result.served.decoders, steps }],
      ),
    )
  // Other shapes have other experts: the figure is of the model that the policies were run with.
  const shape = [...served, ...results][0]?.model.name
  const alone = results
    .filter((result): result is ResultOf<'profile'> => result.kind === 'profile')
    .filter(({ model }) => model.name === shape)
    .map(({ model, profile }) => ({ model, engines: profile.engines ?? 1, steps: profile.steps }))
  const all = [...alone, ...served]
  const counts = [...new Set(all.map(({ engines }) => engines))].sort((a, b) => a - b)
  return counts.flatMap(engines => {
    const own = all.filter(one => one.engines === engines)
    const column = (name: 'experts' | 'ms') => own.flatMap(({ steps }) => usual(steps)[name])
    const [experts, ms] = [column('experts'), column('ms')]
    if (experts.length < 20) return []
    const fit = leastSquares([experts.map(() => 1), experts], ms)
    return [
      {
        label: engines === 1 ? 'one, alone' : many(engines, 'engine'),
        model: own[0]!.model,
        engines,
        experts,
        ms,
        fit,
      },
    ]
  })
}

/** Without steps of more than twice the median time, in which the engine paused. */
function usual({ experts, ms }: ServedSteps): { readonly experts: number[]; readonly ms: number[] } {
  const median = [...ms].sort((a, b) => a - b)[Math.floor(ms.length / 2)]!
  const kept = ms.flatMap((value, i) => (value <= 2 * median ? [i] : []))
  return { experts: kept.map(i => experts[i]!), ms: kept.map(i => ms[i]!) }
}

// Spreading a long array into Math.max overflows the stack.
const maxOf = (values: readonly number[]) => values.reduce((a, b) => Math.max(a, b), -Infinity)
const minOf = (values: readonly number[]) => values.reduce((a, b) => Math.min(a, b), Infinity)
