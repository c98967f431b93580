/** `eldr worker`: ends when a signal told it to and what was under way has ended too. */
import { hostname } from 'node:os'
import { EldrError } from '../errors.ts'
import { createLog } from '../gateway/observe/log/log.ts'
import { createEngine } from '../worker/engine/engine.ts'
import { startWorker, type Worker } from '../worker/server/start-worker.ts'
import type { WorkerEngine } from '../worker/types.ts'
import { toldToStop } from './told-to-stop.ts'
import { openBackEnd, type OpenedBackEnd } from './worker-back-end.ts'
import type { WorkerFlags } from './worker.ts'

const MAX_MODEL_LEN = 32_768

export async function workerAction(flags: WorkerFlags): Promise<void> {
  const log = createLog({ logLevel: flags.logLevel as 'info', logFormat: 'auto' })
  // Before the start, which takes a moment: a signal that comes meanwhile stops the worker as soon as it stands.
  const told = toldToStop()
  const opened = await openBackEnd(flags)
  const model = opened.name
  const engines: WorkerEngine[] = []
  /** The back end that is no engine's yet. */
  let last: OpenedBackEnd | undefined = opened
  let worker: Worker
  try {
    checkKvPorts(flags)
    const maxModelLen = contextOf(flags, opened.positions)
    while (last !== undefined) {
      engines.push(createEngine(last.backEnd, engineSettings(flags, last)))
      last = undefined
      if (engines.length < flags.dataParallelSize) last = await openBackEnd(flags)
    }
    const [engine, ...otherEngines] = engines
    worker = await startWorker({
      host: flags.host,
      port: flags.port,
      kvPort: flags.kvPort,
      kvHost: flags.kvHost ?? reachable(flags.host),
      settings: {
        role: flags.role,
        model,
        maxModelLen,
        rows: opened.rows,
        ...(opened.sampling && { sampling: opened.sampling }),
        promptDetails: flags.enablePromptTokensDetails === true,
        clientStallMs: flags.clientStallMs,
        leaseMs: flags.leaseMs,
      },
      engine: engine!,
      otherEngines,
      log,
      graceMs: flags.graceMs,
    })
  } catch (error) {
    await Promise.all([...engines, ...(last === undefined ? [] : [last.backEnd])].map(each => each.close()))
    throw error
  }
  process.stdout.write(readyLine(flags, model, worker))
  const signal = await told
  log.info(`${signal}: stopping; requests may go on for ${flags.graceMs / 1000} s, a second signal ends them`)
  await worker.stop()
  log.info('stopped')
}

function engineSettings(flags: WorkerFlags, { maxBatchedTokens }: OpenedBackEnd): WorkerEngine['settings'] {
  return {
    blocks: flags.blocks,
    blockTokens: flags.blockSize,
    maxBatchedTokens,
    maxSeqs: flags.maxNumSeqs,
    prefixCaching: flags.prefixCaching,
    capture: flags.role !== 'decode',
    halfLife: flags.recentHalfLife,
  }
}

function checkKvPorts({ kvPort, dataParallelSize }: WorkerFlags): void {
  if (kvPort === 0 || kvPort + dataParallelSize - 1 <= 65_535) return
  throw new EldrError('ELDR_USAGE', {
    found: `--kv-port ${kvPort} with --data-parallel-size ${dataParallelSize}`,
    expected: 'a port for each engine, one after the other, at most 65535',
    todo: 'Take a lower --kv-port; 0 takes any that are free.',
  })
}

/** A request that is let in must be able to run alone. `positions`: of the model, where it has any. */
function contextOf({ maxModelLen, blocks, blockSize }: WorkerFlags, positions: number | undefined): number {
  const fits = blocks * blockSize
  if (maxModelLen === undefined) return Math.min(positions ?? MAX_MODEL_LEN, fits)
  if (maxModelLen <= Math.min(positions ?? Infinity, fits)) return maxModelLen
  const isLong = positions !== undefined && maxModelLen > positions
  const found = `--max-model-len ${maxModelLen} with ${isLong ? `a model of ${positions} positions` : `${blocks} blocks of ${blockSize} tokens`}`
  const todo = isLong ? 'Take a shorter context.' : 'Take more --blocks, or a shorter context.'
  throw new EldrError('ELDR_USAGE', { found, expected: `at most ${isLong ? positions : fits} tokens`, todo })
}

/** Nobody can connect to the address that stands for all of them. */
function reachable(host: string): string {
  return host === '0.0.0.0' || host === '::' ? hostname() : host
}

function readyLine(
  { role, jsonReady, dataParallelSize }: WorkerFlags,
  model: string,
  { url, port, kvPort, context }: Worker,
): string {
  const { origin } = context.handoffs ?? {}
  if (jsonReady)
    return `${JSON.stringify({ ready: true, role, url, port, kv_port: kvPort ?? null, pid: process.pid, engine_id: context.engineId, model, ...(dataParallelSize > 1 && { data_parallel_size: dataParallelSize }) })}\n`
  const engines = dataParallelSize === 1 ? '' : `${dataParallelSize} engines, `
  return `${role} worker for ${model}, ${engines}listening on ${url}${origin === undefined ? '' : `; KV blocks on ${origin.host}:${origin.port}`}\n`
}
