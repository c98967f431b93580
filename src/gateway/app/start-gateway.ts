/** Builds a gateway from its settings, and shuts its parts down in reverse order. */
import { Registry } from '../../cluster/registry.ts'
import { LoadTracker } from '../../cluster/tickets.ts'
import { Admin } from '../control/admin/admin.ts'
import { Events } from '../observe/events.ts'
import { addGauges } from '../observe/metrics/gauges.ts'
import { LoopDelay } from '../observe/metrics/loop-delay.ts'
import { Admission } from '../http/admission.ts'
import type { Settings } from '../config/settings.ts'
import { Experiments } from '../control/experiment/experiments.ts'
import type { AdminContext } from '../control/admin/admin-context.ts'
import { seenHere } from '../control/admin/look-routes.ts'
import type { Replaced } from '../control/admin/replace-routes.ts'
import type { FlowContext } from '../flow/context.ts'
import { drained } from '../flow/drain.ts'
import { Insight } from '../observe/insight/insight.ts'
import { LiveFeed } from '../control/dashboard/live-feed.ts'
import { feedSources } from '../control/dashboard/feed-sources.ts'
import { SignaturePlane } from '../control/dashboard/signature-plane.ts'
import { Decisions } from '../observe/decisions.ts'
import type { RequestObserver } from '../observe/request-observer.ts'
import { logRejectedCounts } from '../observe/log/rejected-counts.ts'
import { descriptorOf, readsCounts } from '../../policy/decode-policy.ts'
import { requestObservers } from './observers.ts'
import { readyDiscovery } from '../control/discovery/discovery.ts'
import type { EngineAdapter } from '../engines/engine.ts'
import { loadEngine } from '../engines/engine-table.ts'
import { Handler } from '../flow/handle.ts'
import type { Continuity, Hosting } from './hosting.ts'
import { Leaving } from './leave.ts'
import { MetricsPort } from './metrics-port.ts'
import { ClientConnections } from '../http/client-connections.ts'
import { createListener, handleOf, listen, type ListenHandle } from '../http/listen.ts'
import { createLog, type Log, RateLimitedLog } from '../observe/log/log.ts'
import { LogLevelControl } from '../observe/log/log-level.ts'
import { LostWorkers } from '../routing/lost-workers.ts'
import { Metrics } from '../observe/metrics/metrics.ts'
import { ShadowCounts } from '../observe/shadow-counts.ts'
import { type Adaptation, type CreateAdaptation } from './adaptation.ts'
import { adaptationHost } from './adaptation-host.ts'
import { DecodeReports } from './decode-reports.ts'
import { localPlacementClient, type LocalPlacementClient } from '../routing/placement-client.ts'
import type { OwnerParts } from '../scale/processes/owner-server.ts'
import { OwnShare } from '../scale/replace/own-share.ts'
import { readyReplicas } from '../scale/replicas/start-replicas.ts'
import { resumeBudget, RetryBudget } from '../routing/retry-budget.ts'
import type { Router } from '../routing/router.ts'
import type { RestartWatch } from '../../cluster/restart-watch.ts'
import { OffThread } from '../routing/off-thread.ts'
import type { RoutingControl } from '../routing/routing-control.ts'
import { readRoutingFiles, startRouting } from '../routing/start-routing.ts'
import { workerTls } from '../http/tls-files.ts'
import { startTracing } from '../observe/tracing/start-tracing.ts'
import { Upstreams } from '../upstream/upstreams.ts'
import { watchWorkers } from '../routing/watch-workers.ts'
import { configuredWorkers } from '../config/configured-workers.ts'

/** Parts that tests and the owner process use. */
export interface GatewayContext extends FlowContext, AdminContext {
  readonly upstreams: Upstreams
  readonly router: Router
  readonly budget: RetryBudget
  readonly restarts: RestartWatch
  readonly insight: Insight
}

export interface GatewayOptions {
  /** Set if other processes serve the requests, and this one decides for them. */
  readonly hosting?: Hosting
  /** Set if state of this process outlives it. */
  readonly continuity?: Continuity
  /**
   * Set if this process replaces another one. Called when everything but the ports is open. Resolves with the
   * socket to listen on (default: the configured address).
   */
  readonly takeOver?: (parts: OwnerParts) => Promise<ListenHandle | undefined>
  /** Starts a successor, for the admin API. */
  readonly replace?: () => Promise<Replaced>
  /** In place of the configured engine. */
  readonly engine?: EngineAdapter
  /** Live recalibration, if `adapt.mode` is not off (default: none). */
  readonly createAdaptation?: CreateAdaptation
  /** Further listeners of requests. */
  readonly observers?: readonly RequestObserver[]
}

export interface Gateway {
  /** Where it listens. */
  readonly url: string
  readonly context: GatewayContext
  readonly control: RoutingControl
  readonly experiments: Experiments
  readonly admission: Admission
  readonly placement: LocalPlacementClient
  /** Routes of the admin API. */
  readonly routes: Admin['routes']
  /** The socket that it listens on. */
  readonly listener: ListenHandle
  readonly metricsPort: MetricsPort
  /** Holds admin changes back, or lets them through again. */
  readonly changes: Admin['changes']
  /** Requests of this process; undefined if other processes serve them. */
  readonly share: OwnShare | undefined
  /** Another gateway counts the load of this one: other replicas hear of it from there. */
  stopSharing(): Promise<void>
  /** Leaves the port to another process. Resolves when the last request has ended. */
  leave(): Promise<void>
  /** Refuses new requests; the gateway's own routes still respond. */
  drain(): void
  /** Refuses new requests; running ones may finish within the grace period. */
  stop(): Promise<void>
}

/** Interval of the search for leaked tickets. */
const LEAK_CHECK_MS = 10_000
/** A ticket counts as leaked when it is older than the request timeout by this much. */
const LEAK_SLACK_MS = 60_000

export async function startGateway(
  settings: Settings,
  log: Log = createLog(settings.observe),
  options: GatewayOptions = {},
): Promise<Gateway> {
  const { hosting, continuity, engine: givenEngine, createAdaptation, observers = [] } = options
  // Read all files before anything is started.
  const files = await readRoutingFiles(settings, continuity?.artifactShownAs)
  const tls = settings.workers.tls && workerTls(settings.workers.tls)
  const engine = givenEngine ?? (await loadEngine(settings.workers.engine, settings.routing))
  const discover = readyDiscovery(settings.discovery, settings.workers)

  const logLevel = new LogLevelControl(log, continuity?.levelChanged)
  const cleanups: (() => unknown)[] = [() => logLevel.close()]
  const cleanUp = async () => {
    for (const step of cleanups.splice(0).toReversed()) await step()
  }
  const metrics = new Metrics()
  const server = createListener(
    settings.server,
    (request, response, proceed) => {
      hosting?.arriving(request)
      void handler.handle(request, response, proceed)
    },
    code => metrics.errorResponses.inc(code),
  )
  const clients = new ClientConnections()
  if (hosting === undefined) clients.watch(server, settings.server.tls !== undefined)
  const events = new Events()
  const rateLimitedLog = new RateLimitedLog()
  const tracing = await startTracing(settings.observe.traces, { metrics, log, rateLimitedLog })
  // Closed almost last, so that the shutdown is traced too.
  cleanups.push(() => tracing?.close())
  const tracker = new LoadTracker()
  const registry = new Registry(tracker, settings.breaker)
  const upstreams = new Upstreams({
    connectMs: settings.timeouts.connectMs,
    idleConnectionMs: settings.workers.idleConnectionMs,
    tls,
  })
  cleanups.push(() => upstreams.close())
  const watch = watchWorkers(settings, registry, upstreams, metrics, log)
  cleanups.push(() => watch.stop())
  registry.subscribe(({ kind, worker: { id, role } }) => {
    events.publish('worker', { change: kind, worker: id, leg: role })
    if (kind === 'forgotten') void forgetSeries(id)
  })
  /** Another worker may have the same id by then. */
  async function forgetSeries(id: string): Promise<void> {
    await metrics.forgetWorker(id)
    const next = registry.views(performance.now()).find(({ spec }) => spec.id === id)
    if (next !== undefined) metrics.addWorker(id, next.spec.role)
  }
  if (continuity?.addWorkers === undefined) registry.addAll(configuredWorkers(settings))
  else continuity.addWorkers(registry)
  const admission = new Admission(settings.limits)
  const loopDelay = new LoopDelay()
  cleanups.push(() => loopDelay.close())
  const insight = new Insight(settings.observe.decisionsKept)
  const planeThread = new OffThread()
  cleanups.push(() => planeThread.close())
  const plane = new SignaturePlane(planeThread, () => control.loaded)
  const feed = new LiveFeed(
    feedSources({ registry, admission, insight, plane, control: () => control, router: () => router }),
  )
  insight.watched = () => feed.isActive
  cleanups.push(() => feed.close())
  registry.subscribe(({ kind, worker: { id } }) => {
    feed.events.add('worker', id, kind)
    if (kind === 'forgotten') insight.pace.forget(id)
  })
  const replicas = await orCleanUp(() =>
    readyReplicas(settings.replicas, {
      tracker,
      registry,
      log,
      rateLimitedLog,
      memory: continuity?.replicaMemory,
      artifact: settings.routing.artifact,
    }),
  )
  const decisions = new Decisions({
    metrics,
    kept: settings.observe.decisionsKept,
    fit: insight.fit,
    followers: [events, feed],
    rejected: logRejectedCounts(log, rateLimitedLog, () => readsCounts(descriptorOf(control.policy))),
  })
  let adaptation: Adaptation | undefined
  let experimentsStarted: Experiments | undefined
  const shadow = new ShadowCounts(settings.routing.shadow)
  const { control, router, conversations } = await orCleanUp(() =>
    startRouting(settings, files, {
      registry,
      decisions,
      log,
      replicas,
      shadow,
      unreachable: worker => watch.health.passiveFailure(worker),
      keepsKv: engine.keepsKv,
      sampled: (request, plain) => adaptation?.decided(request, plain),
      artifactLoaded: continuity?.artifactLoaded,
      changed(change) {
        events.publish('routing', change)
        metrics.routingChanges.inc({ cause: change.cause })
        if (change.cause === 'artifact' || change.cause === 'refit') {
          insight.fit.forget()
          adaptation?.artifactChanged(change.cause)
        }
        feed.events.add('routing', change.routing.policy, change.cause)
        // A new owner starts with the policy that the experiment would have restored.
        const { routing } = change
        continuity?.routingChanged({ ...change, routing: { ...routing, ...experimentsStarted?.restores } })
      },
    }),
  )
  watch.onRestart(worker => conversations?.lost(worker))
  cleanups.push(() => control.close())
  const experiments = new Experiments({ control, log, hasReplicas: replicas !== undefined })
  experimentsStarted = experiments
  replicas?.start(control, router, hold => adaptation?.held(hold))
  cleanups.push(() => replicas?.stop())
  if (settings.adapt.mode !== 'off')
    adaptation = createAdaptation?.(
      settings.adapt,
      adaptationHost({ control, router, registry, events, shown: feed.events, metrics, log, replicas }),
    )
  insight.pace.streamed = ms => adaptation?.streamed(ms)
  const { apiKey } = settings.workers
  const reports =
    adaptation &&
    new DecodeReports({
      registry,
      upstreams,
      // Without an artifact there is nothing to recalibrate.
      shape: () => (router.table.artifact === undefined ? undefined : router.table.shape),
      headersFor: worker => ({
        ...(apiKey !== undefined && { authorization: `Bearer ${apiKey}` }),
        ...engine.rankHeaders(worker),
      }),
      reported: ({ id, steps, counts }) => adaptation?.reported(id, steps, counts),
    })
  cleanups.push(() => reports?.close())
  cleanups.push(() => adaptation?.close())
  const discovery = await orCleanUp(() =>
    discover?.({ registry, metrics, log, memoryOf: continuity?.memoryOf }),
  )
  cleanups.push(() => discovery?.stop())
  const budget = new RetryBudget(settings.retries.budgetShare)
  const { fit, pace } = insight
  const { limits } = settings
  addGauges(metrics, () => ({
    registry,
    admission,
    control,
    loopDelay,
    tracker,
    upstreams,
    clients,
    limits,
    budget,
    fit,
    pace,
    draining: () => handler.draining,
    experiments,
    discovery,
    replicas,
    shadow,
    adapt: adaptation,
  }))
  const placement = localPlacementClient({ registry, router, budget, resumeBudget: resumeBudget() })
  const lost = new LostWorkers(registry, budget)
  const share = hosting === undefined ? ownShare() : undefined
  const context: GatewayContext = {
    settings,
    registry,
    router,
    placement: share?.placement ?? placement,
    upstreams,
    engine,
    observers: [
      ...requestObservers({
        settings,
        metrics,
        log,
        rateLimitedLog,
        insight,
        pace,
        ended: stream => experiments.streamEnded(stream),
        restarts: watch.restarts,
        tracer: tracing?.tracer,
      }),
      ...observers,
    ],
    metrics,
    budget,
    health: watch.health,
    restarts: watch.restarts,
    lost,
    insight,
    log,
    logLevel,
  }
  const admin = new Admin(
    {
      ctx: context,
      control,
      live: () => handler.live,
      withRank: (headers, worker) => ({ ...headers, ...engine.rankHeaders(worker) }),
      elsewhere: hosting?.elsewhere,
      discovery,
      replicas,
      shadow,
      experiments,
      adapt: adaptation,
      replace: options.replace,
    },
    events,
    { feed, plane },
  )
  const handler = new Handler(context, share?.gate ?? admission, admin)
  const leakCheck = setInterval(() => {
    const leaks = tracker.findLeaks(performance.now(), settings.timeouts.requestMs + LEAK_SLACK_MS)
    if (leaks.length === 0) return
    metrics.ticketLeaks.inc(leaks.length)
    log.error(
      { leaks: leaks.map(({ worker, leg }) => ({ worker, leg })) },
      'ticket leak (bug): tickets not released',
    )
  }, LEAK_CHECK_MS).unref()
  cleanups.push(() => clearInterval(leakCheck))
  const { host, port, shutdownGraceMs, replaceGraceMs } = settings.server
  const metricsPort = new MetricsPort(settings.server, metrics)
  // Open until the last stream has ended, so that the shutdown is counted too.
  cleanups.push(() => metricsPort.close())
  const taken = await orCleanUp(() =>
    options.takeOver?.({
      placement,
      registry,
      router,
      admission,
      budget,
      health: watch.health,
      restarts: watch.restarts,
      pace,
      streamEnded: stream => experiments.streamEnded(stream),
      log,
      logLevel: () => log.level,
    }),
  )
  // The owner of a gateway that replaces another one is told when the port is free.
  if (options.takeOver === undefined) await orCleanUp(() => metricsPort.open())
  else if (hosting === undefined) await orCleanUp(() => metricsPort.takeOver())
  const address = await orCleanUp(() => listen(server, host, port, hosting?.path ?? taken))

  /** Requests that this process serves itself. */
  function ownShare(): OwnShare {
    return new OwnShare(placement, admission, {
      lost: (worker, left) => lost.lose(worker, left),
      logLevel: level => void (log.level = level),
      forgotten: () => {},
      async report(what, about) {
        if (what === 'metrics') return metrics.registry.getMetricsAsJSON()
        const { live, story } = seenHere(about, handler.live, insight.stories)
        return { live, story }
      },
    })
  }

  /** Cleans up if a step of the start fails. */
  async function orCleanUp<T>(start: () => T | Promise<T>): Promise<T> {
    try {
      return await start()
    } catch (error) {
      await cleanUp()
      throw error
    }
  }

  function drain(): void {
    handler.draining = true
    experiments.close()
    admin.close()
  }

  async function stopSharing(): Promise<void> {
    experiments.close()
    admin.close()
    await Promise.all([replicas?.stop(), adaptation?.close(), discovery?.stop()])
  }

  let leaving: Leaving | undefined
  async function leave(): Promise<void> {
    leaving ??= new Leaving(handler, server, replaceGraceMs)
    await leaving.left
    share?.close()
    await cleanUp()
  }

  let stopping: Promise<void> | undefined
  async function end(): Promise<void> {
    drain()
    if (leaving === undefined) await drained(handler, server, shutdownGraceMs)
    else {
      leaving.stop(shutdownGraceMs)
      await leaving.left
    }
    share?.close()
    await cleanUp()
  }
  return {
    url: `${settings.server.tls === undefined ? 'http' : 'https'}://${address}`,
    context,
    control,
    experiments,
    admission,
    placement,
    routes: admin.routes,
    get listener() {
      return handleOf(server)
    },
    metricsPort,
    changes: admin.changes,
    share,
    stopSharing,
    leave,
    drain,
    stop: () => (stopping ??= end()),
  }
}
