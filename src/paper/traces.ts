/**
 * The traces of all exhibits: a task mix and a language mix, each with a calibration and an evaluation file.
 */
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { withTrace } from '../trace/trace.ts'

export type WorkloadName = 'task' | 'lang'

/** Names used in texts. */
export const IN_WORDS: Readonly<Record<WorkloadName, string>> = { task: 'task mix', lang: 'language mix' }

export interface TraceFile {
  readonly path: string
  /** Reports name files without folders, so the same traces give the same report anywhere. */
  readonly name: string
  readonly sha256: string
  /** The recorded model, as named in the file. */
  readonly model: string
  readonly requests: number
  readonly layers: number
  readonly experts: number
  readonly topK: number
  readonly domains: readonly string[]
  /** Mean per request. */
  readonly decodeSteps: number
  /** Median over requests; 0 if the trace does not have it. */
  readonly promptTokens: number
}

export interface TracePair {
  readonly workload: WorkloadName
  readonly calibration: TraceFile
  readonly evaluation: TraceFile
}

/** Resolves to the same folder from src/paper and dist/paper. */
const SHIPPED = fileURLToPath(new URL('../../data/', import.meta.url))

export async function tracesIn(
  folder: string = SHIPPED,
): Promise<readonly [task: TracePair, lang: TracePair]> {
  return [await pairOf(folder, 'task'), await pairOf(folder, 'lang')]
}

async function pairOf(folder: string, workload: WorkloadName): Promise<TracePair> {
  const file = (split: string) => join(folder, `lab16-${workload}.${split}.safetensors`)
  return {
    workload,
    calibration: await describe(file('calibration')),
    evaluation: await describe(file('evaluation')),
  }
}

function describe(path: string): Promise<TraceFile> {
  return withTrace(path, async trace => {
    const { model, requests, layers, experts, topK, domains } = trace
    const steps = await trace.decodeSteps()
    const prompts = Array.from((await trace.promptTokens()) ?? []).sort((a, b) => a - b)
    return {
      path,
      name: basename(path),
      sha256: await trace.sha256(),
      model,
      requests,
      layers,
      experts,
      topK,
      domains,
      decodeSteps: Array.from(steps).reduce((sum, count) => sum + count, 0) / Math.max(1, requests),
      promptTokens: prompts[Math.floor(prompts.length / 2)] ?? 0,
    }
  })
}
