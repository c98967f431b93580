/** `eldr worker`: ends when a signal told it to and what was under way has ended too. */
import { hostname } from 'node:os'
import { fileURLToPath } from 'node:url'
import { loadProfile } from '../cost/profile-file.ts'
import { EldrError } from '../errors.ts'
import { createLog } from '../gateway/log.ts'
import { openTrace, type Trace } from '../trace/trace.ts'
import { createEngine } from '../worker/engine/engine.ts'
import { createReplay } from '../worker/replay/replay.ts'
import { startWorker, type Worker } from '../worker/server/start-worker.ts'
import type { WorkerEngine } from '../worker/types.ts'
import { toldToStop } from './told-to-stop.ts'
import type { WorkerFlags } from './worker.ts'

/** The same file from src/cli and from dist/cli. */
const SHIPPED_TRACE = fileURLToPath(new URL('../../data/lab16-task.evaluation.safetensors', import.meta.url))
const MAX_MODEL_LEN = 32_768

export async function workerAction(flags: WorkerFlags): Promise<void> {
  const maxModelLen = contextOf(flags)
  const log = createLog({ logLevel: flags.logLevel as 'info', logFormat: 'auto' })
  // Before the start, which takes a moment: a signal that comes meanwhile stops the worker as soon as it stands.
  const told = toldToStop()
  const profile = await loadProfile(flags.profile)
  const trace = await openTrace(flags.trace ?? SHIPPED_TRACE)
  const model = flags.model ?? trace.model
  let engine: WorkerEngine | undefined
  let worker: Worker
  try {
    engine = createEngine(await createReplay({ trace, profile, speed: flags.speed }), engineSettings(flags))
    worker = await startWorker({
      host: flags.host,
      port: flags.port,
      kvPort: flags.kvPort,
      kvHost: flags.kvHost ?? reachable(flags.host),
      settings: {
        role: flags.role,
        model,
        maxModelLen,
        rows: trace.requests,
        promptDetails: flags.enablePromptTokensDetails === true,
        clientStallMs: flags.clientStallMs,
        leaseMs: flags.leaseMs,
      },
      engine,
      log,
      graceMs: flags.graceMs,
    })
  } catch (error) {
    await close(engine, trace)
    throw error
  }
  process.stdout.write(readyLine(flags, model, worker))
  const signal = await told
  log.info(`${signal}: stopping; requests may go on for ${flags.graceMs / 1000} s, a second signal ends them`)
  await worker.stop()
  log.info('stopped')
}

/** The trace is the back end's once there is one. */
async function close(engine: WorkerEngine | undefined, trace: Trace): Promise<void> {
  if (engine === undefined) await trace.close()
  else await engine.close()
}

function engineSettings(flags: WorkerFlags): WorkerEngine['settings'] {
  return {
    blocks: flags.blocks,
    blockTokens: flags.blockSize,
    maxBatchedTokens: flags.maxNumBatchedTokens,
    maxSeqs: flags.maxNumSeqs,
    prefixCaching: flags.prefixCaching,
    capture: flags.role !== 'decode',
    halfLife: flags.recentHalfLife,
  }
}

/** A request that is let in must be able to run alone. */
function contextOf({ maxModelLen, blocks, blockSize }: WorkerFlags): number {
  const fits = blocks * blockSize
  if (maxModelLen === undefined) return Math.min(MAX_MODEL_LEN, fits)
  if (maxModelLen <= fits) return maxModelLen
  const found = `--max-model-len ${maxModelLen} with ${blocks} blocks of ${blockSize} tokens`
  throw new EldrError('ELDR_USAGE', { found, expected: `at most ${fits} tokens`, todo: 'Take more --blocks, or a shorter context.' })
}

/** Nobody can connect to the address that stands for all of them. */
function reachable(host: string): string {
  return host === '0.0.0.0' || host === '::' ? hostname() : host
}

function readyLine({ role, jsonReady }: WorkerFlags, model: string, { url, port, kvPort, context }: Worker): string {
  const { origin } = context.handoffs ?? {}
  if (jsonReady)
    return `${JSON.stringify({ ready: true, role, url, port, kv_port: kvPort ?? null, pid: process.pid, engine_id: context.engineId, model })}\n`
  return `${role} worker for ${model}, listening on ${url}${origin === undefined ? '' : `; KV blocks on ${origin.host}:${origin.port}`}\n`
}
