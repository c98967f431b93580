/** What a relay is made of: the same parts that serve requests in a gateway of one process, with the owner in the place of the router. */
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
import { loadEngine } from '../engines/registry.ts'
import { Handler } from '../flow/handle.ts'
import { createListener, listen } from '../http/listen.ts'
import { type Log, RateLimitedLog } from '../observe/log/log.ts'
import { LostWorkers } from '../routing/lost-workers.ts'
import { Metrics } from '../observe/metrics/metrics.ts'
import { workerTls } from '../http/tls-files.ts'
import { startTracing } from '../observe/tracing/start-tracing.ts'
import { Upstreams } from '../upstream/upstreams.ts'
import { ASK, PACES } from '../scale/processes/messages.ts'
import { OwnerPages } from '../scale/processes/owner-pages.ts'
import { RelayLink } from '../scale/processes/relay-link.ts'
import { RemoteAdmission } from '../scale/processes/remote-admission.ts'
import { remotePlacementClient } from '../scale/processes/remote-placement-client.ts'

export interface RelayPlace {
  readonly number: number
  /** Where the owner is asked, and where its pages are. */
  readonly desk: string
  readonly pages: string
  /** Clients come by the supervisor, but Node looks after the connections of a server only while it listens: at a path that nobody asks. */
  readonly own: string
}

export interface Relay {
  /** A connection that another process has accepted. */
  accept(socket: Socket): void
  /** Others take its place: what has come is served, then connections end, within the grace period. */
  leave(): Promise<void>
  /** What is under way may end within the grace period. */
  stop(): Promise<void>
  /** What is under way ends now: clients are told. Resolves when they have been. */
  fail(): Promise<void>
}

export async function startRelay(settings: Settings, log: Log, place: RelayPlace): Promise<Relay> {
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
    code => metrics.errorAnswers.inc(code),
  )
  const clients = new ClientConnections()
  clients.watch(server, settings.server.tls !== undefined)
  const loopDelay = new LoopDelay()

  const link = new RelayLink({
    path: place.desk,
    relay: place.number,
    lost: (worker, left) => lost.lose(worker, left),
    room: room => admission.roomIs(room),
    logLevel: level => void (log.level = level),
    connected: () => engines.clear(),
    forgotten({ url }) {
      if (![...link.workers.values()].some(worker => worker.url === url)) upstreams.forget(url)
    },
    async report(what, about) {
      if (what === 'metrics') return metrics.registry.getMetricsAsJSON()
      const { live, story } = seenHere(about, handler.live, insight.stories)
      return { live, ...(story && { story }) }
    },
  })
  /** Of a worker's hand-offs one after the other have the same id: the owner need not hear of each. */
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
    // The owner parses the counts.
    engine: await loadEngine(settings.workers.engine, { ...settings.routing, rawCounts: true }),
    observers: requestObservers({
      settings,
      metrics,
      log,
      rateLimitedLog,
      insight,
      pace: remotePace(link),
      restarts: { sawEngineId },
      tracer: tracing?.tracer,
    }),
    lost,
    log,
  }
  const handler = new Handler(context, admission, new OwnerPages(place.pages))
  await link.open()
  rmSync(place.own, { force: true }) // of one that was killed
  await listen(server, settings.server.host, settings.server.port, place.own)

  /** Node does not count connections that come so. */
  const handed = new Set<Socket>()
  let noneLeft = () => {}
  async function end(): Promise<void> {
    await drained(handler, server, settings.server.shutdownGraceMs)
    // What it has counted to the last, for those who ask when it is gone.
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
      // As the server makes its own.
      socket.allowHalfOpen = true
      socket.setNoDelay(true)
      handed.add(socket)
      socket.once('close', () => {
        handed.delete(socket)
        if (handed.size === 0) noneLeft()
      })
      server.emit('connection', socket)
    },
    async leave() {
      handler.leaving = true
      const none = new Promise<void>(resolve => (noneLeft = resolve))
      if (handed.size === 0) noneLeft()
      server.closeIdleConnections()
      await Promise.race([none, wait(settings.server.shutdownGraceMs, undefined, { ref: false })])
    },
    stop: end,
    async fail() {
      server.close()
      for (const exchange of handler.live) exchange.stop('fault')
      await handler.settled()
    },
  }
}

/** Times go to the owner, which has the dashboard; stories stay here until they are asked for. */
function remotePace(link: RelayLink): Pick<Pace, 'firstByte' | 'stream' | 'onWorker'> {
  const report = (what: number) => (name: string, ms: number) =>
    link.tell(ASK.pace, 0, to => to.byte(what).text(name).number(ms))
  return {
    firstByte: report(PACES.indexOf('firstByte')),
    stream: report(PACES.indexOf('stream')),
    onWorker: report(PACES.indexOf('onWorker')),
  }
}
