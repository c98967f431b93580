/**
 * Builds a relay: the parts that serve requests in a single-process gateway, with the owner in place of the
 * router.
 */
import { rmSync } from 'node:fs'
import type { Socket } from 'node:net'
import { setTimeout as wait } from 'node:timers/promises'
import { addLoopGauges } from '../observe/metrics/gauges.ts'
import { addConnectionGauges } from '../observe/metrics/gauges-traffic.ts'
import { seenHere } from '../control/admin/look-routes.ts'
import { LoopDelay } from '../observe/metrics/loop-delay.ts'
import { ClientConnections } from '../http/client-connections.ts'
import type { Settings } from '../config/settings.ts'
import type { FlowContext } from '../flow/context.ts'
import { Insight } from '../observe/insight/insight.ts'
import type { Pace } from '../observe/insight/pace.ts'
import { requestObservers } from './observers.ts'
import { drained } from '../flow/drain.ts'
import { loadEngine } from '../engines/engine-table.ts'
import { Handler } from '../flow/handle.ts'
import { createListener, listen } from '../http/listen.ts'
import { type Log, RateLimitedLog } from '../observe/log/log.ts'
import { LostWorkers } from '../routing/lost-workers.ts'
import { Metrics } from '../observe/metrics/metrics.ts'
import { workerTls } from '../http/tls-files.ts'
import { startTracing } from '../observe/tracing/start-tracing.ts'
import { Upstreams } from '../upstream/upstreams.ts'
import { ASK, PACES, writeStream } from '../scale/processes/messages.ts'
import { OwnerPages } from '../scale/processes/owner-pages.ts'
import { RelayLink } from '../scale/processes/relay-link.ts'
import { RemoteAdmission } from '../scale/processes/remote-admission.ts'
import { remotePlacementClient } from '../scale/processes/remote-placement-client.ts'

export interface RelayOptions {
  /** Of this process. */
  readonly id: number
  /** Socket of the owner. */
  readonly owner: string
  /** Socket of the owner's own routes. */
  readonly pages: string
  /**
   * Socket that the relay listens on without being called: connections come from the supervisor, but Node
   * manages the connections of a server only while it listens.
   */
  readonly own: string
}

export interface Relay {
  /** Takes a connection that the supervisor has accepted. */
  accept(socket: Socket): void
  /** Serves what arrives until its connections have closed, within the grace period. */
  leave(graceMs: number): Promise<void>
  /** Continues with another owner. Resolves when that knows the requests of this relay. */
  moveTo(owner: string): Promise<void>
  /** Ends within the grace period (default: that of a shutdown). */
  stop(graceMs?: number): Promise<void>
  /** Ends all requests now with an error. Resolves when clients have it. */
  fail(): Promise<void>
}

export async function startRelay(settings: Settings, log: Log, options: RelayOptions): Promise<Relay> {
  const metrics = new Metrics()
  const rateLimitedLog = new RateLimitedLog()
  const tls = settings.workers.tls && workerTls(settings.workers.tls)
  const tracing = await startTracing(settings.observe.traces, { metrics, log, rateLimitedLog })
  const upstreams = new Upstreams({
    connectMs: settings.timeouts.connectMs,
    idleConnectionMs: settings.workers.idleConnectionMs,
    tls,
  })
  const lost = new LostWorkers()
  const insight = new Insight(settings.observe.decisionsKept)
  const server = createListener(
    settings.server,
    (request, response, proceed) => void handler.handle(request, response, proceed),
    code => metrics.errorResponses.inc(code),
  )
  const clients = new ClientConnections()
  clients.watch(server, settings.server.tls !== undefined)
  const loopDelay = new LoopDelay()

  const link = new RelayLink({
    path: options.owner,
    relay: options.id,
    lost: (worker, left) => lost.lose(worker, left),
    room: room => admission.setRoom(room),
    logLevel: level => void (log.level = level),
    connected: () => engines.clear(),
    forgotten({ url }) {
      if (![...link.workers.values()].some(worker => worker.url === url)) upstreams.forget(url)
    },
    async report(what, about) {
      if (what === 'metrics') return metrics.registry.getMetricsAsJSON()
      const { live, story } = seenHere(about, handler.live, insight.stories)
      return { live, story }
    },
  })
  /** Successive hand-offs of a worker have the same engine id: only changes are sent to the owner. */
  const engines = new Map<string, string>()
  function sawEngineId(worker: string, engine: string): void {
    if (engines.get(worker) === engine) return
    engines.set(worker, engine)
    link.tell(ASK.sawEngine, 0, to => to.text(worker).text(engine))
  }
  const admission = new RemoteAdmission(link, settings.limits)
  addConnectionGauges(metrics, () => ({
    registry: { views: () => [...link.workers.values()].map(spec => ({ spec })) },
    clients,
    upstreams,
  }))
  addLoopGauges(metrics, () => loopDelay)
  const context: FlowContext = {
    settings,
    placement: remotePlacementClient(link, admission),
    upstreams,
    engine: await loadEngine(settings.workers.engine, settings.routing),
    observers: requestObservers({
      settings,
      metrics,
      log,
      rateLimitedLog,
      insight,
      pace: remotePace(link),
      ended: stream => link.tell(ASK.streamEnded, 0, to => writeStream(to, stream)),
      restarts: { sawEngineId },
      tracer: tracing?.tracer,
    }),
    lost,
    log,
  }
  const handler = new Handler(context, admission, new OwnerPages(options.pages))
  await link.open()
  rmSync(options.own, { force: true }) // left behind by a relay that was killed
  await listen(server, settings.server.host, settings.server.port, options.own)

  /** Node does not count connections that it has not accepted itself. */
  const connections = new Set<Socket>()
  let noneLeft = () => {}
  async function end(graceMs = settings.server.shutdownGraceMs): Promise<void> {
    await drained(handler, server, graceMs)
    // The final report, so that the owner keeps its counts.
    link.tell(
      ASK.report,
      0,
      await metrics.registry.getMetricsAsJSON().then(json => to => to.text(JSON.stringify(json))),
    )
    await tracing?.close()
    loopDelay.close()
    upstreams.close()
    link.close()
  }
  return {
    accept(socket) {
      // The options that the server sets on its own connections.
      socket.allowHalfOpen = true
      socket.setNoDelay(true)
      connections.add(socket)
      socket.once('close', () => {
        connections.delete(socket)
        if (connections.size === 0) noneLeft()
      })
      server.emit('connection', socket)
    },
    async leave(graceMs) {
      // Idle connections end at their timeout: a request may be on its way on each.
      handler.leaving = true
      const none = new Promise<void>(resolve => (noneLeft = resolve))
      if (connections.size === 0) noneLeft()
      await Promise.race([none, wait(graceMs, undefined, { ref: false })])
    },
    moveTo: owner => link.moveTo(owner),
    stop: end,
    async fail() {
      server.close()
      for (const exchange of handler.live) exchange.stop('fault')
      await handler.settled()
    },
  }
}

/** Sends times to the owner, which has the dashboard. Stories stay here until the owner asks for them. */
function remotePace(link: RelayLink): Pick<Pace, 'firstByte' | 'stream' | 'onWorker'> {
  const report = (what: number) => (name: string, ms: number) =>
    link.tell(ASK.pace, 0, to => to.byte(what).text(name).number(ms))
  return {
    firstByte: report(PACES.indexOf('firstByte')),
    stream: report(PACES.indexOf('stream')),
    onWorker: report(PACES.indexOf('onWorker')),
  }
}
