/** Section of docs/evidence/gpu.md on where the time of capture goes. */
import { markdownTable } from '../report/markdown-table.ts'
import { whole } from '../report/numbers.ts'
import type { ResultOf } from './result-file.ts'

/** What the plugin does around a step on the host; callers include the functions they call. */
const FUNCTIONS = {
  'EldrConnector.build_connector_meta': 'scheduler: blocks and ends of prompts',
  'EldrConnector.bind_connector_metadata': 'before the forward pass',
  'Capture._record': 'in the last layer: store the ids (in the CUDA graph of small steps)',
  'EldrConnector.build_connector_worker_meta': 'after the forward pass: launch the sums',
  'EldrConnector.update_connector_output': 'scheduler: wait for the sums, write the hand-off',
} as const

/** The profile is that of an earlier plugin; the cost, of the present one, has the same timers. */
export function captureProfileSection(
  profiles: readonly ResultOf<'capture-profile'>[],
  costs: readonly ResultOf<'capture-cost'>[],
): string[] {
  const columns = [
    ...profiles.map(({ conditions, model, captureProfile }) => ({
      conditions,
      model,
      timers: captureProfile.timers,
    })),
    ...costs.map(({ conditions, model, captureCost }) => ({
      conditions,
      model,
      timers: captureCost.timers,
    })),
  ].flatMap(({ conditions, model, timers }) =>
    timers.map(({ promptTokens, functions }) => ({
      head: `${model.name}, ${conditions.commit.slice(0, 7)}: ${whole(promptTokens)} tokens`,
      functions,
    })),
  )
  if (columns.length === 0) return []
  return [
    '### Where it goes',
    'Host time per request in µs, by commit. Most of it passes while the device works. It includes the steps without tokens that an engine takes until the blocks of a hand-off have been read: some 10 µs each, and more of them the longer that takes.',
    markdownTable(
      ['on the host', ...columns.map(({ head }) => head)],
      1,
      Object.entries(FUNCTIONS).map(([name, words]) => [
        words,
        ...columns.map(({ functions }) => {
          const found = functions[name]
          return found === undefined ? '·' : whole(found.usPerRequest)
        }),
      ]),
    ),
    'The profile of the earlier plugin led to the present one: kernels read and write pinned memory and are launched directly, computed blocks are not cleared first, and the device writes counts as they are sent.',
  ]
}
