/** Opens the back end of `eldr worker`, with the properties that the server needs. */
import { fileURLToPath } from 'node:url'
import { loadProfile } from '../cost/profile-file.ts'
import { EldrError } from '../errors.ts'
import { openTrace } from '../trace/trace.ts'
import { createReplay } from '../worker/replay/replay.ts'
import type { SamplingDefaults } from '../worker/server/api-request.ts'
import { loadTinyModel } from '../worker/tiny/model-folder.ts'
import { createTiny } from '../worker/tiny/tiny.ts'
import type { BackEnd } from '../worker/types.ts'
import type { WorkerFlags } from './worker.ts'

/** These relative paths work from both src/cli and dist/cli. */
const SHIPPED_TRACE = fileURLToPath(new URL('../../data/lab16-task.evaluation.safetensors', import.meta.url))
export const SHIPPED_MODEL = fileURLToPath(new URL('../../models/tiny6', import.meta.url))
/**
 * Default tokens per step. The tiny model takes about 0.1 s for 256, and the process does nothing else
 * meanwhile.
 */
const TOKENS = { replay: 2_048, tiny: 256 } as const

export interface OpenedBackEnd {
  readonly backEnd: BackEnd
  /** Model name for clients. */
  readonly name: string
  /** Rows of the trace. */
  readonly rows: number | undefined
  readonly sampling: SamplingDefaults | undefined
  /** The model's limit on prompt plus output tokens; undefined: no limit. */
  readonly positions: number | undefined
  readonly maxBatchedTokens: number
}

export async function openBackEnd(flags: WorkerFlags): Promise<OpenedBackEnd> {
  const maxBatchedTokens = flags.maxNumBatchedTokens ?? TOKENS[flags.backend]
  const opened = flags.backend === 'tiny' ? await openTiny(flags) : await openReplay(flags)
  return { ...opened, maxBatchedTokens }
}

async function openReplay({
  trace: path,
  profile = 'h200-first',
  speed = 1,
  model,
  servedModelName,
  pace,
}: WorkerFlags) {
  if (pace !== undefined)
    throw misplaced(
      '--pace',
      'tiny',
      'Replay always takes its step times from a profile: pass it with --profile.',
    )
  const costs = await loadProfile(profile)
  const trace = await openTrace(path ?? SHIPPED_TRACE)
  try {
    const backEnd: BackEnd = await createReplay({ trace, profile: costs, speed })
    const name = servedModelName ?? model ?? trace.model
    return { backEnd, name, rows: trace.requests, sampling: undefined, positions: undefined }
  } catch (error) {
    await trace.close()
    throw error
  }
}

async function openTiny({
  trace,
  profile,
  model: folder,
  servedModelName,
  pace = 'real',
  speed,
}: WorkerFlags) {
  if (trace !== undefined)
    throw misplaced('--trace', 'replay', 'The tiny back end computes its experts: pass a --model folder.')
  if (profile !== undefined)
    throw misplaced('--profile', 'replay', 'Pass the profile of the tiny back end with --pace.')
  if (pace === 'real' && speed !== undefined)
    throw new EldrError('ELDR_USAGE', {
      found: '--speed without a profile',
      expected: '--pace PROFILE with it',
      todo: 'Remove --speed, which scales only profile times, or pass a profile with --pace.',
    })
  const paced = pace === 'real' ? pace : { profile: await loadProfile(pace), speed: speed ?? 1 }
  const model = await loadTinyModel(folder ?? SHIPPED_MODEL)
  const backEnd: BackEnd = createTiny({ model, pace: paced })
  return {
    backEnd,
    name: servedModelName ?? model.name,
    rows: undefined,
    sampling: model.generation.sampling,
    positions: model.config.positions,
  }
}

function misplaced(flag: string, backEnd: string, todo: string): EldrError {
  return new EldrError('ELDR_USAGE', { found: flag, expected: `--backend ${backEnd} with it`, todo })
}
