/** Section of docs/evidence/gpu.md on where the time of capture goes. */
import { markdownTable } from '../report/markdown-table.ts'
import { fixed, whole } from '../report/numbers.ts'
import { meanInterval } from '../sim/confidence.ts'
import { median, signed } from './capture-numbers.ts'
import type { ResultOf } from './result-file.ts'

/** What the plugin does around a step on the host; callers include the functions they call. */
const FUNCTIONS = {
  'EldrConnector.bind_connector_metadata': 'before the forward pass: reset new blocks',
  'Capture._record': 'in the last layer: store the ids (in the CUDA graph of small steps)',
  'EldrConnector.build_connector_worker_meta': 'after the forward pass: launch the sums',
  'EldrConnector.update_connector_output': 'scheduler: wait for the sums, write the hand-off',
  'EldrConnector.build_connector_meta': 'scheduler: blocks and ends of prompts',
} as const

export function captureProfileSection(results: readonly ResultOf<'capture-profile'>[]): string[] {
  return results.flatMap(({ captureProfile: { variants, timers }, conditions }) => [
    '### Where it goes',
    `Servers that differ in one thing each got the same prompts in turn (commit ${conditions.commit.slice(0, 12)}). Each row adds something to the row above; the difference is to that row, median and mean ± 95 %.`,
    markdownTable(
      ['server', 'prompt tokens', 'prompts', 'leg ms, median', 'added ms, median', 'added ms, mean ± 95 %'],
      1,
      variants.flatMap(({ promptTokens, rawMs, what }) => {
        const names = Object.keys(rawMs)
        return names.map((name, i) => {
          const [ms, before] = [rawMs[name]!, rawMs[names[i - 1] ?? '']]
          const added = before === undefined ? [] : ms.map((value, at) => value - before[at]!)
          const { mean, half } = added.length === 0 ? { mean: 0, half: 0 } : meanInterval(added)
          return [
            what[name] ?? name,
            whole(promptTokens),
            whole(ms.length),
            fixed(median(ms), 2),
            added.length === 0 ? '·' : signed(median(added), 2),
            added.length === 0 ? '·' : `${signed(mean, 2)} ± ${fixed(half, 2)}`,
          ]
        })
      }),
    ),
    'The servers without capture show how far processes differ by themselves. Host time per request in µs, while the device works:',
    markdownTable(
      ['function', ...timers.map(({ promptTokens }) => `${whole(promptTokens)} tokens`)],
      1,
      Object.entries(FUNCTIONS).map(([name, words]) => [
        words,
        ...timers.map(({ functions }) => {
          const found = functions[name]
          return found === undefined ? '·' : whole(found.usPerRequest)
        }),
      ]),
    ),
  ])
}
