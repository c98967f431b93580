/**
 * Synthetic requests: of fixed length with shared prefixes, for the rows of a trace, or with the lengths and
 * prefixes of a recorded workload.
 */
import { basename } from 'node:path'
import { createRandom } from '../math/random.ts'
import type { RecordedWorkload } from '../sim/recorded-workload.ts'
import { withTrace } from '../trace/trace.ts'
import { joined, piece, type Piece, type PromptForm } from './synthetic-text.ts'
import type { RequestSource } from './request-source.ts'

export interface SyntheticSpec {
  readonly form: PromptForm
  readonly promptTokens: number
  readonly outputTokens: number
  /** Number of shared prefixes of `prefixTokens`, one of which begins each request; 0: no shared prefixes. */
  readonly prefixGroups: number
  readonly prefixTokens: number
  readonly seed: number
}

/** Labels of independent random streams. */
const GROUP = 1
const OWN = 2
const PREFIX = 3
const ROW = 4
const BLOCK = 5

export function synthetic({
  form,
  promptTokens,
  outputTokens,
  prefixGroups,
  prefixTokens,
  seed,
}: SyntheticSpec): RequestSource {
  const shared = prefixGroups > 0 ? prefixTokens : 0
  const prefixes: Piece[] = Array.from({ length: shared > 0 ? prefixGroups : 0 }, (_, g) =>
    piece(form, shared, seed, PREFIX, g),
  )
  const groups = createRandom(seed).fork(GROUP)
  return {
    about: {
      kind: 'synthetic',
      form,
      promptTokens,
      outputTokens,
      ...(shared > 0 && { prefixGroups, prefixTokens }),
    },
    request(index) {
      const own = piece(form, promptTokens - shared, seed, OWN, index)
      const prefix = shared > 0 ? [prefixes[groups.fork(index).below(prefixGroups)]!] : []
      return { prompt: joined([...prefix, own]), maxTokens: outputTokens }
    },
  }
}

export interface TraceRows {
  readonly file: string
  /** [N], one per request of the trace. */
  readonly promptTokens: ArrayLike<number>
  readonly decodeSteps: ArrayLike<number>
}

export async function readTraceRows(file: string): Promise<TraceRows> {
  return withTrace(file, async trace => {
    trace.need('replay')
    const decodeSteps = await trace.decodeSteps()
    return {
      file,
      decodeSteps,
      promptTokens: (await trace.promptTokens()) ?? new Uint32Array(decodeSteps.length).fill(1),
    }
  })
}

/**
 * Request i replays row `rows[i]` of the trace (default: all rows in order), and the rows start over after
 * the last. A row's prompt is always the same. Prefill makes the first token, so a request has one token more
 * than decode steps.
 */
export function traceSource(
  { file, promptTokens, decodeSteps }: TraceRows,
  form: PromptForm,
  seed: number,
  rows?: Int32Array,
): RequestSource {
  const count = rows?.length ?? decodeSteps.length
  return {
    about: { kind: 'trace', file: basename(file), rows: decodeSteps.length, form },
    request(index) {
      const row = rows === undefined ? index % count : rows[index % count]!
      return {
        prompt: piece(form, Math.max(1, promptTokens[row]!), seed, ROW, row),
        maxTokens: decodeSteps[row]! + 1,
        row,
      }
    },
  }
}

/** Request i has the lengths and shared prefixes of line i of the workload. */
export function workloadSource(workload: RecordedWorkload, form: PromptForm, seed: number): RequestSource {
  const { promptTokens, outputTokens, prefixes, source } = workload
  return {
    about: { kind: 'workload', file: source, requests: promptTokens.length, form },
    request(index) {
      const at = index % promptTokens.length
      const blocks =
        prefixes === undefined
          ? []
          : Array.from(prefixes.ids.subarray(prefixes.starts[at], prefixes.starts[at + 1]))
      const shared = blocks.map(id => piece(form, prefixes!.blockTokens, seed, BLOCK, id))
      const own = promptTokens[at]! - blocks.length * (prefixes?.blockTokens ?? 0)
      return { prompt: joined([...shared, piece(form, own, seed, OWN, index)]), maxTokens: outputTokens[at]! }
    },
  }
}
