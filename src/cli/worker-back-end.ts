/** The back end that `eldr worker` was told to run, and what the server has to know of it. */
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

/** The same files from src/cli and from dist/cli. */
const SHIPPED_TRACE = fileURLToPath(new URL('../../data/lab16-task.evaluation.safetensors', import.meta.url))
export const SHIPPED_MODEL = fileURLToPath(new URL('../../models/tiny6', import.meta.url))
/** Of a step, unless told: what a real model computes in about a tenth of a second, during which nothing else is answered. */
const TOKENS = { replay: 2_048, tiny: 256 } as const

export interface OpenedBackEnd {
  readonly backEnd: BackEnd
  /** As clients call the model. */
  readonly name: string
  /** Of the trace. */
  readonly rows: number | undefined
  readonly sampling: SamplingDefaults | undefined
  /** Tokens of prompt and answer that the model can tell apart; undefined: any number. */
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
    throw misplaced('--pace', 'tiny', 'Replay always keeps to a profile: name it with --profile.')
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
    throw misplaced('--trace', 'replay', 'The tiny back end computes its experts: give it a --model folder.')
  if (profile !== undefined)
    throw misplaced('--profile', 'replay', 'The tiny back end keeps to a profile that --pace names.')
  if (pace === 'real' && speed !== undefined)
    throw new EldrError('ELDR_USAGE', {
      found: '--speed without a profile',
      expected: '--pace PROFILE with it',
      todo: 'Steps take what they take: leave --speed out, or name a profile with --pace for it to scale.',
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
