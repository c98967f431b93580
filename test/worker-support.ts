/** An engine on a synthetic trace with simulated time, and requests to it that can be awaited. */
import { join } from 'node:path'
import { loadProfile } from '../src/cost/profile-file.ts'
import { openTrace } from '../src/trace/trace.ts'
import { createEngine } from '../src/worker/engine/engine.ts'
import type { StepClock } from '../src/worker/engine/step-clock.ts'
import { createReplay, type ReplaySettings } from '../src/worker/replay/replay.ts'
import type {
  BackEnd,
  EngineSettings,
  Generation,
  GenerationEnd,
  RunningGeneration,
  WorkerEngine,
} from '../src/worker/types.ts'
import { type SyntheticModel, writeSyntheticTrace } from './synthetic-traces.ts'

export const SMALL_MODEL: SyntheticModel = { layers: 3, experts: 12, topK: 3, domains: 3, preference: 6 }
export const SMALL_ROWS = 24
/** The same for every row of a synthetic trace. */
export const SMALL_STEPS = 24

export const SETTINGS: EngineSettings = {
  blocks: 256,
  blockTokens: 16,
  maxBatchedTokens: 2_048,
  maxSeqs: 64,
  prefixCaching: true,
  capture: true,
  halfLife: 5,
}

/** A clock that jumps to the next deadline, with event loop turns in between. */
export function jumpingClock(): StepClock {
  let nowMs = 0
  let pending: NodeJS.Immediate | undefined
  const soon = (run: () => void) => {
    pending = setImmediate(run)
  }
  return {
    now: () => nowMs,
    at: (deadlineMs, run) => {
      soon(() => {
        nowMs = Math.max(nowMs, deadlineMs)
        run()
      })
    },
    soon,
    after: (_, run) => {
      const timer = setImmediate(run)
      return () => clearImmediate(timer)
    },
    cancel: () => clearImmediate(pending),
  }
}

export async function smallTrace(folder: string): Promise<string> {
  const path = join(folder, 'small.safetensors')
  await writeSyntheticTrace(path, SMALL_MODEL, SMALL_ROWS, 7)
  return path
}

export async function replayOn(tracePath: string, settings: Partial<ReplaySettings> = {}): Promise<BackEnd> {
  return createReplay({
    trace: await openTrace(tracePath),
    profile: await loadProfile('h200-first'),
    speed: 1,
    ...settings,
  })
}

export async function engineOn(
  tracePath: string,
  settings: Partial<EngineSettings> = {},
): Promise<WorkerEngine> {
  return createEngine(await replayOn(tracePath), { ...SETTINGS, ...settings }, jumpingClock())
}

let requests = 0
export function requestOf(promptIds: ArrayLike<number>, changes: Partial<Generation> = {}): Generation {
  return {
    id: `r${requests++}`,
    promptIds: Int32Array.from(promptIds),
    maxTokens: 8,
    minTokens: 0,
    ignoreEos: false,
    stopTokenIds: new Set(),
    temperature: 0,
    topK: 0,
    topP: 1,
    seed: undefined,
    row: undefined,
    generated: 0,
    keepForDecode: false,
    remote: undefined,
    recordDecode: false,
    ...changes,
  }
}

export interface Watched {
  readonly request: Generation
  readonly ids: number[]
  text: string
  readonly handle: RunningGeneration
  readonly ended: Promise<GenerationEnd>
  end: GenerationEnd | undefined
}

/** `onToken` receives the number of tokens so far. */
export function start(
  engine: WorkerEngine,
  request: Generation,
  onToken?: (made: number, watched: Watched) => void,
): Watched {
  const { promise, resolve } = promiseOf<GenerationEnd>()
  const watched: Watched = {
    request,
    ids: [],
    text: '',
    ended: promise,
    end: undefined,
    handle: engine.generate(request, {
      onToken: (id, text) => {
        watched.ids.push(id)
        watched.text += text
        onToken?.(watched.ids.length, watched)
      },
      onEnd: end => {
        if (watched.end !== undefined) throw new Error('ended twice')
        watched.end = end
        resolve(end)
      },
    }),
  }
  return watched
}

export async function finished(engine: WorkerEngine, request: Generation) {
  const watched = start(engine, request)
  const end = await watched.ended
  if (end.kind !== 'finished') throw new Error(`${request.id}: ${JSON.stringify(end)}`)
  return { ...watched, end }
}

export const range = (from: number, to: number): number[] =>
  Array.from({ length: to - from }, (_, i) => from + i)

function promiseOf<T>() {
  let resolve: (value: T) => void = () => {}
  const promise = new Promise<T>(settle => (resolve = settle))
  return { promise, resolve }
}
