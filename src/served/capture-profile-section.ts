/** Section of docs/evidence/gpu.md on where the time of capture goes. */
import { markdownTable } from '../report/markdown-table.ts'
import { fixed, whole } from '../report/numbers.ts'
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
