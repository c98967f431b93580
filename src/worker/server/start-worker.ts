/**
 * Assembles a worker: engine, HTTP server, side channel. Shutdown: refuse new requests, let running ones end,
 * free the blocks.
 */
import { randomUUID } from 'node:crypto'
import { createServer, type Server } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import type { Logger } from 'pino'
import { EldrError } from '../../errors.ts'
import { BODY_BUDGET_BYTES, ByteBudget } from '../../wire/byte-budget.ts'
import { KV_LIMITS } from '../kv/kv-client.ts'
import { KvServer } from '../kv/kv-server.ts'
import { LeaseBook } from '../kv/leases.ts'
import type { WorkerEngine } from '../types.ts'
import { PLAIN_SAMPLING } from './api-request.ts'
import type { ServerSettings, WorkerContext } from './context.ts'
import { DecodedLog } from './decoded-log.ts'
import { LiveRequests } from './live-requests.ts'
import { WorkerMetrics } from './metrics.ts'
import { answer } from './routes.ts'
import { UnreadHandoffs } from './unread-handoffs.ts'

export interface WorkerOptions {
  readonly host: string
  /** 0: any free port. */
  readonly port: number
  /** Further engines listen on the ports after it. */
  readonly kvPort: number
  /** Address at which decode workers reach this worker. */
  readonly kvHost: string
  readonly settings: Omit<
    ServerSettings,
    'kvLimits' | 'maxBodyBytes' | 'bodyBudgetBytes' | 'clientStallMs' | 'sampling'
  > &
    Partial<ServerSettings>
  readonly engine: WorkerEngine
  /** Engines of rank 1 and above, if there are several behind this URL. */
  readonly otherEngines?: readonly WorkerEngine[]
  readonly log: Logger
  /** How long running requests may continue after `stop`. */
  readonly graceMs: number
}

export interface Worker {
  readonly url: string
  readonly port: number
  /** Undefined on a decode-only worker. */
  readonly kvPort: number | undefined
  /** The context of rank 0. */
  readonly context: WorkerContext
  stop(): Promise<void>
}

const DEFAULTS = {
  kvLimits: KV_LIMITS,
  maxBodyBytes: 64 << 20,
  bodyBudgetBytes: BODY_BUDGET_BYTES,
  clientStallMs: 60_000,
  sampling: PLAIN_SAMPLING,
} as const
/**
 * Longer than a gateway keeps idle connections, so that the worker never closes one that is about to be used.
 */
const KEEP_ALIVE_MS = 75_000
const FAREWELL_MS = 1_000

export async function startWorker(options: WorkerOptions): Promise<Worker> {
  const { host, port, engine, otherEngines = [], log, graceMs } = options
  const settings: ServerSettings = { ...DEFAULTS, ...options.settings }
  const sockets = new Set<Socket>()
  const ranks: WorkerContext[] = []
  const shared = {
    settings,
    ranks,
    log,
    live: new LiveRequests(),
    bodies: { maxBytes: settings.maxBodyBytes, budget: new ByteBudget(settings.bodyBudgetBytes) },
    connections: () => sockets.size,
  }
  const handoffs: Awaited<ReturnType<typeof openHandoffs>>[] = []
  const closeHandoffs = () => Promise.all(handoffs.map(each => each.server.close()))
  const serverId = randomUUID()
  try {
    for (const [rank, each] of [engine, ...otherEngines].entries()) {
      // The same naming as vLLM’s for the engines of one server.
      const engineId = otherEngines.length === 0 ? serverId : `${serverId}_dp${rank}`
      const metrics: WorkerMetrics = new WorkerMetrics({
        engine: each,
        model: settings.model,
        rank,
        kv: () =>
          own && {
            leases: own.leases.size,
            leasedBlocks: own.leases.blocks,
            connections: own.server.connections,
          },
      })
      const own =
        settings.role === 'decode'
          ? undefined
          : await openHandoffs(options, settings, rank, engineId, metrics)
      if (own !== undefined) handoffs.push(own)
      const decoded = new DecodedLog(each.model)
      ranks.push({ ...shared, engine: each, engineId, metrics, decoded, handoffs: own })
    }
  } catch (error) {
    await closeHandoffs()
    throw error
  }
  const context = ranks[0]!
  let stopping: Promise<void> | undefined
  const server = createServer({ noDelay: true, keepAliveTimeout: KEEP_ALIVE_MS }, (request, response) => {
    if (stopping !== undefined) response.shouldKeepAlive = false
    for (const { unread } of handoffs) unread.heard(request.socket)
    response.on('finish', () => stopping && setImmediate(() => server.closeIdleConnections()))
    void answer(context, request, response)
  })
  server.maxRequestsPerSocket = 0
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.on('close', wasReset => {
      sockets.delete(socket)
      for (const { unread } of handoffs) unread.closed(socket, wasReset)
    })
  })
  try {
    await listen(server, host, port)
  } catch (error) {
    await closeHandoffs()
    throw error
  }
  const { address, port: actual, family } = server.address() as AddressInfo

  async function stop(): Promise<void> {
    const { live } = context
    const closed = new Promise<void>(resolve => server.close(() => resolve()))
    server.closeIdleConnections()
    await within(graceMs, [live.whenIdle(), ...handoffs.map(each => each.whenRead())])
    live.endAll()
    await Promise.all(ranks.map(each => each.engine.close()))
    // Clients of aborted requests get an error.
    await within(FAREWELL_MS, [closed])
    // Notifications about the aborted requests are short; a dead worker does not respond to them.
    await within(settings.kvLimits.connectMs, [live.whenIdle()])
    server.closeAllConnections()
    await closeHandoffs()
    await closed
  }

  return {
    url: `http://${family === 'IPv6' ? `[${address}]` : address}:${actual}`,
    port: actual,
    kvPort: handoffs[0]?.origin.port,
    context,
    stop: () => (stopping ??= stop()),
  }
}

async function openHandoffs(
  { host, kvPort, kvHost, log }: WorkerOptions,
  { leaseMs }: ServerSettings,
  rank: number,
  engineId: string,
  metrics: WorkerMetrics,
) {
  const read: (() => void)[] = []
  const leases: LeaseBook = new LeaseBook({
    leaseMs,
    onEnd(id, end) {
      if (end === 'expired') {
        metrics.leasesExpired.inc()
        log.warn({ id }, 'lease of a hand-off expired before a decode worker read its KV blocks')
      }
      if (leases.size === 0) for (const resolve of read.splice(0)) resolve()
    },
  })
  const server = new KvServer({
    host,
    port: kvPort === 0 ? 0 : kvPort + rank,
    engineId,
    leases,
    onBadFrame(why) {
      metrics.badFrames.inc()
      log.warn({ why }, 'invalid frame on the KV side channel, connection closed')
    },
    onFault: err => log.error({ err }, 'internal error in the KV side channel'),
  })
  await server.listen()
  const whenRead = () =>
    new Promise<void>(resolve => (leases.size === 0 ? resolve() : void read.push(resolve)))
  const unread = new UnreadHandoffs(remoteId => leases.end(remoteId, 'released'))
  return { leases, server, unread, origin: { engineId, host: kvHost, port: server.port, leaseMs }, whenRead }
}

async function listen(server: Server, host: string, port: number): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) => {
      const found = `${host}:${port} (${cause.code ?? cause.message})`
      reject(
        new EldrError('ELDR_PORT_TAKEN', {
          found,
          todo: 'Choose another --port or --host; 0 selects any free port.',
          cause,
        }),
      )
    })
    server.listen(port, host, resolve)
  })
}

/** Waits until all have settled or the time is up. */
async function within(ms: number, all: readonly Promise<void>[]): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const up = new Promise<void>(resolve => (timer = setTimeout(resolve, ms)))
  await Promise.race([up, Promise.all(all)])
  clearTimeout(timer)
}
