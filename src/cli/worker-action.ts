/** `eldr worker`: runs until a signal stops it, then drains. */
import { hostname } from 'node:os'
import { EldrError } from '../errors.ts'
import { createLog } from '../gateway/observe/log/log.ts'
import { createEngine } from '../worker/engine/engine.ts'
import { startWorker, type Worker } from '../worker/server/start-worker.ts'
import type { WorkerEngine } from '../worker/types.ts'
import { shutdownSignal } from './shutdown-signal.ts'
import { openBackEnd, type OpenedBackEnd } from './worker-back-end.ts'
import type { WorkerFlags } from './worker.ts'

const MAX_MODEL_LEN = 32_768

export async function workerAction(flags: WorkerFlags): Promise<void> {
  const log = createLog({ logLevel: flags.logLevel as 'info', logFormat: 'auto' })
  // Listen before the start, which takes a moment: a signal that arrives meanwhile stops the worker once it
  // is up.
  const stopSignal = shutdownSignal({ repeatMs: 0 })
  const opened = await openBackEnd(flags)
  const model = opened.name
  const engines: WorkerEngine[] = []
  /** A back end that no engine owns yet. */
  let pending: OpenedBackEnd | undefined = opened
  let worker: Worker
  try {
    checkKvPorts(flags)
    const maxModelLen = contextOf(flags, opened.positions)
    while (pending !== undefined) {
      engines.push(createEngine(pending.backEnd, engineSettings(flags, pending)))
      pending = undefined
      if (engines.length < flags.dataParallelSize) pending = await openBackEnd(flags)
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
        sampling: opened.sampling,
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
    await Promise.all(
      [...engines, ...(pending === undefined ? [] : [pending.backEnd])].map(each => each.close()),
    )
    throw error
  }
  process.stdout.write(readyLine(flags, model, worker))
  const signal = await stopSignal
  log.info(
    `${signal}: shutting down; running requests may continue for ${flags.graceMs / 1000} s, a second signal ends them`,
  )
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
    expected: 'one port per engine, consecutive and at most 65535',
    todo: 'Use a lower --kv-port, or 0 for free ports.',
  })
}

/** Every accepted request must fit into the blocks alone. `positions`: the model's limit, if it has one. */
function contextOf({ maxModelLen, blocks, blockSize }: WorkerFlags, positions: number | undefined): number {
  const fits = blocks * blockSize
  if (maxModelLen === undefined) return Math.min(positions ?? MAX_MODEL_LEN, fits)
  if (maxModelLen <= Math.min(positions ?? Infinity, fits)) return maxModelLen
  const isLong = positions !== undefined && maxModelLen > positions
  const found = `--max-model-len ${maxModelLen} with ${isLong ? `a model of ${positions} positions` : `${blocks} blocks of ${blockSize} tokens`}`
  const todo = isLong ? 'Use a shorter context.' : 'Use more --blocks, or a shorter context.'
  throw new EldrError('ELDR_USAGE', { found, expected: `at most ${isLong ? positions : fits} tokens`, todo })
}

/** Clients cannot connect to a wildcard address. */
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
