/** Fig. 17: locality and the prefix cache do not get in each other's way. */
import type { Exhibit } from '../report/exhibit.ts'
import { whole } from '../report/numbers.ts'
import { changeAgainst, over } from '../sim/sweep.ts'
import { cellsOf, type Point, type Simulated, tpotP50, tpotP99, ttftP50 } from './cells.ts'
import { type Context, simulatedFrom } from './context.ts'
import { served } from './loads.ts'
import { pair } from './main-results.ts'
import { fixed, percent } from './rounded.ts'
import { change, mean, number } from './words.ts'

const POLICIES = ['round_robin', 'eldr', 'union'] as const
/** The paper's is the highest of its rates. */
const BATCH = 45

export function prefixCache(context: Context): Simulated<Exhibit> {
  const [task] = context.workloads
  const rate = context.rateOf(served(task), BATCH)
  const off = cellsOf(POLICIES, rate, served(task))
  const on = cellsOf(POLICIES, rate, {
    ...served(task),
    prefixCacheTokens: context.profile.kv.capacityTokens,
  })
  return {
    cells: [...off, ...on],
    make: of => {
      const states = [
        { name: 'off', points: off.map(of) },
        { name: 'on', points: on.map(of) },
      ]
      const hit = over(states[1]!.points[0]!, run => run.prefixHitShare ?? 0).mean
      const ttft = states.map(({ points }) => over(points[0]!, ttftP50).mean)
      const eldr = states.map(
        ({ points: [base, point] }) =>
          [changeOf(base!, point!, tpotP50), changeOf(base!, point!, tpotP99)] as const,
      )
      return {
        id: 'fig-17',
        title: 'Fig. 17: with a prefix cache',
        finding: `With the cache on, ${percent(hit)} of the prompt tokens are not read again and the median TTFT falls from ${fixed(ttft[0], 1)} to ${fixed(ttft[1], 1)} ms; eldr’s TPOT p50 / p99 against round_robin is ${pair(...eldr[0]!)} without and ${pair(...eldr[1]!)} with it.`,
        paper: {
          finding:
            'The cache collapses TTFT for both routers and leaves TPOT alone; ELDR’s gain of about 13 % (p50) and 5 % (p99) is there in both states.',
          differs: `The trace’s prompts are short (median ${whole(task.evaluation.promptTokens)} tokens), so a prefill step is mostly its fixed part and TTFT falls less; decode does not hold up prefill in the simulator.`,
        },
        source: `${simulatedFrom(context, [task])} ${rate} requests a second; ${whole(task.evaluation.requests)} prompts come again and again, prefill by prefix_hash, ${whole(context.profile.kv.capacityTokens)} tokens kept by each prefill worker.`,
        tables: [
          {
            columns: [
              'cache, policy',
              'TTFT p50',
              'TPOT p50',
              'change',
              'TPOT p99',
              'change',
              'tokens from the cache',
            ],
            rows: states.flatMap(({ name, points }) =>
              points.map(point => [
                `${name}, ${point.variant}`,
                mean(over(point, ttftP50), 1, 'ms'),
                mean(over(point, tpotP50), 2, 'ms'),
                point === points[0] ? null : change(changeAgainst(points[0]!, point, tpotP50)),
                mean(over(point, tpotP99), 2, 'ms'),
                point === points[0] ? null : change(changeAgainst(points[0]!, point, tpotP99)),
                number(100 * over(point, run => run.prefixHitShare ?? 0).mean, 0, '%'),
              ]),
            ),
          },
        ],
        charts: [
          {
            kind: 'bars',
            title: 'Median TTFT',
            x: 'ms',
            groups: states.map(({ name, points }) => ({
              heading: `cache ${name}`,
              bars: points.map(point => ({
                label: point.variant,
                ...number(over(point, ttftP50).mean, 1, 'ms'),
              })),
            })),
          },
          {
            kind: 'bars',
            title: 'Median TPOT',
            x: 'ms',
            groups: states.map(({ name, points }) => ({
              heading: `cache ${name}`,
              bars: points.map(point => ({
                label: point.variant,
                ...number(over(point, tpotP50).mean, 2, 'ms'),
              })),
            })),
          },
        ],
      }
    },
  }
}

const changeOf = (base: Point, point: Point, value: typeof tpotP50): number =>
  changeAgainst(base, point, value).mean
