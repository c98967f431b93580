/** Fig. 17: gains with and without a prefix cache. */
import type { Exhibit } from '../report/exhibit.ts'
import { whole } from '../report/numbers.ts'
import { changeAgainst, over } from '../sim/sweep.ts'
import { cellsOf, type Point, type Simulated, tpotP50, tpotP99, ttftP50 } from './cells.ts'
import { type Context, simulatedFrom } from './context.ts'
import { served } from './loads.ts'
import { pair } from './main-results.ts'
import { fixed, percent } from './rounded.ts'
import { change, mean, number } from './words.ts'

const POLICIES = ['round_robin', 'band', 'union'] as const
/** The paper uses the highest of its rates. */
const BATCH = 45
/** Why equal gains in this exhibit prove nothing about the capture of counts. */
const NOT_A_TEST =
  'This exhibit cannot fail: the simulator takes the counts of the whole prompt from the trace, whatever the cache holds, so the cache changes prefill time only. That counts survive prefix hits is tested in vLLM itself, by test/vllm/test_engine_modes.py and test/vllm/test_counts.py.'

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
      const band = states.map(
        ({ points: [base, point] }) =>
          [changeOf(base!, point!, tpotP50), changeOf(base!, point!, tpotP99)] as const,
      )
      return {
        id: 'fig-17',
        title: 'Fig. 17: gains with a prefix cache',
        finding: `With the cache on, ${percent(hit)} of the prompt tokens come from the cache and the median TTFT falls from ${fixed(ttft[0], 1)} to ${fixed(ttft[1], 1)} ms; band’s TPOT p50 / p99 against round_robin is ${pair(...band[0]!)} without the cache and ${pair(...band[1]!)} with it.`,
        notes: [NOT_A_TEST],
        paper: {
          finding:
            'The cache lowers TTFT sharply for both routers and does not change TPOT; ELDR gains about 13 % (p50) and 5 % (p99) with and without it.',
          differs: `The trace’s prompts are short (median ${whole(task.evaluation.promptTokens)} tokens), so most of a prefill step is its fixed cost and TTFT falls less.`,
        },
        source: `${simulatedFrom(context, [task])} ${rate} requests per second; the ${whole(task.evaluation.requests)} prompts repeat; prefill policy prefix_hash; each prefill worker caches ${whole(context.profile.kv.capacityTokens)} tokens.`,
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
