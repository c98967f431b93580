/** Section of docs/evidence/gpu.md on where the time of capture goes. */
import { markdownTable } from '../report/markdown-table.ts'
import { fixed, whole } from '../report/numbers.ts'
import { withInterval } from './capture-numbers.ts'
import type { ResultOf } from './result-file.ts'

type Timers = ResultOf<'capture-cost'>['captureCost']['timers']
type Functions = Timers[number]['functions']

const connector = (...names: string[]) => names.map(name => `EldrConnector.${name}`)
/** Called once per step, so its calls are the steps. */
const STEP = 'EldrConnector.build_connector_meta'

/** What the plugin does around a step on the host. The functions of a row include those that they call. */
const ROWS: readonly (readonly [string, readonly string[]])[] = [
  [
    'scheduler: a request arrives, gets its blocks, ends',
    connector(
      'on_new_request',
      'get_num_new_matched_tokens',
      'update_state_after_alloc',
      'request_finished_all_groups',
    ),
  ],
  ['scheduler, every step: blocks and ends of prompts', [STEP]],
  ['worker, every step: before the forward pass', connector('bind_connector_metadata')],
  ['worker, last layer: store the ids (in the CUDA graph of small steps)', ['Capture._record']],
  [
    'worker, every step: after the forward pass, launch the sums',
    connector('wait_for_save', 'build_connector_worker_meta'),
  ],
  ['both, every step: asked for metrics', connector('get_kv_connector_stats')],
  ['scheduler: wait for the sums, write the hand-off', connector('update_connector_output')],
]

/** The profile is that of an earlier plugin; the cost, of later ones, has the same timers. */
export function captureProfileSection(
  profiles: readonly ResultOf<'capture-profile'>[],
  costs: readonly ResultOf<'capture-cost'>[],
): string[] {
  const timed = [
    ...profiles.map(({ captureProfile, ...result }) => ({ ...result, timers: captureProfile.timers })),
    ...costs.map(({ captureCost, ...result }) => ({ ...result, timers: captureCost.timers })),
  ]
  const columns = timed.flatMap(({ conditions, model, timers }) =>
    timers.map(({ promptTokens, functions }) => ({
      head: `${model.name}, ${conditions.commit.slice(0, 7)}: ${whole(promptTokens)} tokens`,
      functions,
    })),
  )
  if (columns.length === 0) return []
  const row = (words: string, of: (functions: Functions) => string) => [
    words,
    ...columns.map(({ functions }) => of(functions)),
  ]
  return [
    '### Where it goes',
    `Host time of the plugin per request in µs, by commit; the timers themselves are included. Much of it is not part of the prefill leg: it passes while the device works, or after the response. After the response an engine takes steps without tokens until the decode engine has read the blocks; a longer read means more of them.${emptySteps(timed.map(({ timers }) => timers))}`,
    markdownTable(['on the host', ...columns.map(({ head }) => head)], 1, [
      ...ROWS.map(([words, names]) => row(words, functions => shown(usOf(functions, names)))),
      row('total', functions => shown(totalOf(functions))),
      row('steps per request', functions => fixed(functions[STEP]?.callsPerRequest, 0)),
    ]),
    'The profile of the earliest plugin led to the later ones: kernels read and write pinned memory and are launched directly, computed blocks are not cleared first, and the device writes counts as they are sent. Since the last of these runs, a call for metrics that has nothing to report returns at once.',
  ]
}

/** Servers that each have one thing more than the one before: the leg, and what the thing adds. */
export function variantSection(profiles: readonly ResultOf<'capture-profile'>[]): string[] {
  return profiles.flatMap(({ model, conditions, captureProfile: { variants = [] } }) => {
    const [first] = variants
    if (first === undefined) return []
    const rows = Object.entries(first.what).map(([name, words], at, all) => [
      words,
      ...variants.flatMap(({ legMs, addedMs }) => {
        const of = at === 0 ? undefined : addedMs[`${name} − ${all[at - 1]![0]}`]?.median
        return [fixed(legMs[name]?.p50, 2), of === undefined ? '·' : withInterval(of)]
      }),
    ])
    const head = variants.flatMap(({ promptTokens }) => [
      `${whole(promptTokens)} tokens: leg, ms`,
      'added, ms',
    ])
    return [
      '### By connector',
      `The prefill leg on servers that each have one thing more than the one above, ${model.name}, the same ${whole(first.legMs[Object.keys(first.what)[0]!]?.count)} prompts in turn; commit ${conditions.commit.slice(0, 7)}, before the changes named above. *Added*: the median of the pairs and its 95 % interval. ${clearOnes(variants)}`,
      markdownTable(['server', ...head], 1, rows),
    ]
  })
}

type Variants = NonNullable<ResultOf<'capture-profile'>['captureProfile']['variants']>

/** Which steps of the table can be told from zero. */
function clearOnes(variants: Variants): string {
  const clear = variants.flatMap(({ promptTokens, addedMs, what }) =>
    Object.entries(addedMs)
      .filter(([, { median: of }]) => of.low > 0 || of.high < 0)
      .map(([pair]) => `“${what[pair.split(' − ')[0]!]}” at ${whole(promptTokens)} tokens`),
  )
  return clear.length === 0
    ? 'No interval excludes zero.'
    : `The interval excludes zero for ${clear.join(', ')} only; these are different servers, which differ by more than what most of the rows add.`
}

const shown = (us: number | undefined): string => (us === undefined ? '·' : whole(us))

function usOf(functions: Functions, names: readonly string[]): number | undefined {
  const found = names.flatMap(name => functions[name]?.usPerRequest ?? [])
  return found.length === 0 ? undefined : found.reduce((a, b) => a + b, 0)
}

const totalOf = (functions: Functions): number | undefined =>
  usOf(
    functions,
    ROWS.flatMap(([, names]) => names),
  )

/**
 * What a step without tokens costs: the slope of the total over the steps, between the prompts with the most
 * and the fewest of them. A request has one other step, and its cost varies little.
 */
function emptySteps(all: readonly Timers[]): string {
  const costs = all.flatMap(timers => {
    const points = timers
      .map(({ functions }) => ({
        steps: functions[STEP]?.callsPerRequest ?? NaN,
        us: (totalOf(functions) ?? NaN) - (functions['Capture._record']?.usPerRequest ?? 0),
      }))
      .toSorted((a, b) => a.steps - b.steps)
    const [fewest, most] = [points[0], points.at(-1)]
    const cost = most && fewest ? (most.us - fewest.us) / (most.steps - fewest.steps) : NaN
    return Number.isFinite(cost) ? [cost] : []
  })
  if (costs.length === 0) return ''
  const [low, high] = [Math.min(...costs), Math.max(...costs)]
  const range = whole(low) === whole(high) ? whole(low) : `${whole(low)} to ${whole(high)}`
  return ` One such step costs the plugin about ${range} µs.`
}
