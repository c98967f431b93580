/**
 * Recorded arrivals of public traces, from a folder given by the user; their licences do not let us ship
 * them.
 */
import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { CostProfile } from '../cost/profile.ts'
import { prefillUs } from '../cost/profile.ts'
import { EldrError } from '../errors.ts'
import { DEFAULT_LIMITS } from '../sim/limits.ts'
import { parseWorkload, type RecordedFile } from '../sim/recorded-workload.ts'
import { guess } from './loads.ts'
import { average } from './words.ts'

const FILES = [
  'azure-llm-2023-conv.csv',
  'azure-llm-2023-code.csv',
  'mooncake-conversation.jsonl',
  'mooncake-synthetic.jsonl',
] as const
const CAPS = { promptTokens: 2_048, outputTokens: 512 } as const

export interface RecordedSource {
  readonly name: string
  readonly file: RecordedFile
  readonly sha256: string
  readonly requests: number
  /** Mean over the requests of a run, after the caps. */
  readonly promptTokens: number
  readonly outputTokens: number
  /** Standard deviation of the gaps between arrivals over their mean; 1 is Poisson. */
  readonly burstiness: number
  /** With enough prefill workers for the rates that fill the decoders. */
  readonly topology: string
}

/** `used`: requests per run. `largest`: the largest mean decode batch that prefill must sustain. */
export async function recordedIn(
  folder: string,
  profile: CostProfile,
  used: number,
  largest: number,
): Promise<RecordedSource[]> {
  const sources: RecordedSource[] = []
  for (const name of FILES) {
    const file = { file: join(folder, name), ...CAPS }
    const text = await readFile(file.file, 'utf8').catch((cause: unknown) => {
      throw new EldrError('ELDR_FILE_UNREADABLE', { file: file.file, cause })
    })
    const workload = parseWorkload(file.file, text, CAPS)
    const outputTokens = average([...workload.outputTokens.subarray(0, used)])
    const promptTokens = average([...workload.promptTokens.subarray(0, used)])
    const perSecond = guess(
      { setting: {}, batch: largest, decodeSteps: Math.max(1, outputTokens - 1) },
      profile,
    )
    sources.push({
      name,
      file,
      sha256: createHash('sha256').update(text).digest('hex'),
      requests: workload.promptTokens.length,
      promptTokens,
      outputTokens,
      burstiness: variation(workload.timesUs.subarray(0, used)),
      topology: `${prefillWorkers(profile, perSecond * promptTokens)}P16D`,
    })
  }
  return sources
}

/**
 * At most half busy on average, in multiples of 8, so that bursts reach the decoders instead of queueing at
 * prefill.
 */
function prefillWorkers(profile: CostProfile, tokensPerSecond: number): number {
  const { prefillTokensPerStep } = DEFAULT_LIMITS
  const perWorker = prefillTokensPerStep / (prefillUs(profile, prefillTokensPerStep) / 1e6)
  return 8 * Math.ceil((2 * tokensPerSecond) / perWorker / 8)
}

function variation(timesUs: Float64Array): number {
  const gaps = Array.from(timesUs.subarray(1), (time, at) => time - timesUs[at]!)
  const mean = average(gaps)
  return Math.sqrt(average(gaps.map(gap => (gap - mean) ** 2))) / mean
}
