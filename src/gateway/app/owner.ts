/** The owner: a gateway that admits and places the requests of the relays. Run by the supervisor. */
import { rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { resolve } from 'node:path'
import type { SeenRequest } from '../control/admin/admin-context.ts'
import { setClientAddress } from '../http/auth.ts'
import { createLog } from '../observe/log/log.ts'
import type { LogLevelControl } from '../observe/log/log-level.ts'
import { closeLog } from '../observe/log/log-output.ts'
import type { AdaptationModule, CreateAdaptation } from './adaptation.ts'
import type { Hosting } from './hosting.ts'
import { type Gateway, startGateway } from './start-gateway.ts'
import {
  type Inbox,
  ownerPath,
  type OwnerStart,
  pagesPath,
  runAsMember,
  tellSupervisor,
} from '../scale/processes/supervisor-messages.ts'
import { MergedMetrics, type MetricsJson, ownPart } from '../scale/processes/merged-metrics.ts'
import { TELL } from '../scale/processes/messages.ts'
import { KeptArtifact } from '../scale/processes/kept-artifact.ts'
import { FROM_HEADER } from '../scale/processes/owner-pages.ts'
import { OwnerServer } from '../scale/processes/owner-server.ts'
import {
  addSaved,
  levelOf,
  DiscoveryMemory,
  restoreLevel,
  routingOf,
  type SavedState,
  savedWorkers,
  settingsWith,
} from '../scale/processes/saved-state.ts'

/** Timeout of a report from a relay. */
const REPORT_MS = 1_000
/** Interval of reading the relays' metrics: if a relay dies, counts of this long may be lost. */
const METRICS_INTERVAL_MS = 5_000
/** How long requests wait for relays to declare theirs, and for workers to be ready again. */
const DECLARE_MS = 1_500

// Only the supervisor stops the owner: it handles a signal to the whole group, and relays still need the
// owner.
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR2'] as const) process.on(signal, () => {})

async function run(start: OwnerStart, inbox: Inbox): Promise<void> {
  const { settings: given, folder, saved, relays, adaptation } = start
  process.prependListener('disconnect', () => rmSync(folder, { recursive: true, force: true }))
  const save = (part: SavedState) => tellSupervisor({ kind: 'saved', saved: part })
  const { tls: _, ...server } = given.server
  const { endpoint: __, ...traces } = given.observe.traces
  const settings = settingsWith({ ...given, server, observe: { ...given.observe, traces } }, saved)
  const log = createLog(settings.observe).child({ process: 'owner' })
  const merged = new MergedMetrics(saved.kept, saved.seen)
  if (saved.own !== undefined) await merged.keep(saved.own)
  for (const path of [pagesPath(folder), ownerPath(folder)]) rmSync(path, { force: true })

  const discoveryMemory = new DiscoveryMemory(saved.discovery)
  const kept = new KeptArtifact(folder, saved.artifact?.path, log, artifact => save({ artifact }))

  /** Reports of all relays, in any order, without relays that time out or disconnect meanwhile. */
  const askAll = async <T>(kind: number, about: string): Promise<{ relay: number; report: T }[]> => {
    const pending = [...(owner?.relays ?? [])].map(async relay => ({
      relay,
      report: await relay.ask(kind, about, REPORT_MS),
    }))
    const reports = await Promise.all(pending)
    const connected = new Set(owner?.relays)
    return reports.flatMap(({ relay, report }) =>
      connected.has(relay) && relay.number !== undefined && report !== undefined
        ? { relay: relay.number, report: report as T }
        : [],
    )
  }
  const hosting: Hosting = {
    path: pagesPath(folder),
    arriving(request) {
      const from = request.headers[FROM_HEADER]
      setClientAddress(request, typeof from === 'string' ? from : '')
    },
    addWorkers: saved.workers && (registry => addSaved(registry, saved)),
    elsewhere: {
      request: async id => (await askAll<SeenRequest>(TELL.request, id)).map(({ report }) => report),
    },
    artifactLoaded: (path, shownAs) => kept.loaded(resolve(path), shownAs),
    artifactShownAs: saved.artifact?.shownAs,
    memoryOf: source => discoveryMemory.of(source),
    replicaMemory: { pending: saved.pending ?? {}, pendingChanged: pending => save({ pending }) },
    levelChanged() {
      owner?.levelChanged()
      if (level !== undefined) save(levelOf(level.view()))
    },
    routingChanged: change => save(routingOf(change)),
  }
  // Undefined while the gateway starts: there are no relays to notify yet.
  let owner: OwnerServer | undefined
  let level: LogLevelControl | undefined
  const createAdaptation = await adaptationIn(adaptation)
  const gateway: Gateway = await startGateway(settings, log, { hosting, createAdaptation })
  const { registry, router, budget, health, restarts, insight, metrics, logLevel } = gateway.context
  level = logLevel
  const { artifact: first } = given.routing
  if (saved.artifact === undefined && first !== undefined) await kept.loaded(resolve(first), first)
  if (saved.clusters !== undefined) void gateway.control.restoreClusters(saved.clusters)
  if (saved.logLevel !== undefined) restoreLevel(logLevel, saved.logLevel)
  const relayServer = (owner = new OwnerServer(
    {
      placement: gateway.placement,
      registry,
      router,
      admission: gateway.admission,
      budget,
      health,
      restarts,
      pace: insight.pace,
      streamEnded: stream => gateway.experiments.streamEnded(stream),
      log,
      logLevel: () => log.level,
    },
    { relays, roles: saved.ready ?? [], timeoutMs: DECLARE_MS },
  ))

  const ownMetrics = async () => (await metrics.registry.getMetricsAsJSON()) as MetricsJson
  const saveCounts = async () => {
    for (const { relay, report } of await askAll<MetricsJson>(TELL.metrics, '')) merged.saw(relay, report)
    const own = await ownMetrics()
    save({ own: ownPart(own), seen: merged.seen })
    return own
  }
  // Counts are saved at every scrape: Prometheus would take a counter that falls for a reset.
  metrics.text = async () => merged.text(await saveCounts())
  relayServer.finalReport = (relay, report) => merged.saw(relay, report as MetricsJson)
  const relayGone = async (relay: number) => {
    await merged.gone(relay)
    save({ kept: merged.kept, seen: merged.seen })
  }
  relayServer.disconnected = relay => void relayGone(relay)
  const saving = setInterval(() => void saveCounts(), METRICS_INTERVAL_MS)
  registry.subscribe(({ kind, worker }) => {
    if (kind === 'forgotten') void merged.forgetWorker(worker.id)
    if (!kind.startsWith('breaker_')) save({ ...savedWorkers(registry), ...discoveryMemory.saved })
  })
  // Relays that died with the last owner, or while there was none.
  for (const relay of Object.keys(merged.seen).map(Number))
    if (!relays.includes(relay)) await merged.gone(relay)
  save({ ...savedWorkers(registry), ...discoveryMemory.saved, kept: merged.kept, seen: merged.seen, own: [] })

  const listener = createServer(socket => relayServer.connected(socket))
  await new Promise<void>((listening, failed) =>
    listener.once('error', failed).listen(ownerPath(folder), listening),
  )
  inbox.listen(message => {
    if (message.kind === 'died') {
      relayServer.relayDied(message.id)
      void relayGone(message.id)
    } else if (message.kind === 'drain') gateway.drain()
    else if (message.kind === 'toggleDebug') logLevel.toggleDebug()
    else if (message.kind === 'stop') void stop()
  })
  async function stop(): Promise<void> {
    clearInterval(saving)
    listener.close()
    relayServer.close()
    await gateway.stop()
    await closeLog()
    process.exit(0)
  }
}

async function adaptationIn(module: string | undefined): Promise<CreateAdaptation | undefined> {
  if (module === undefined) return undefined
  return ((await import(module)) as AdaptationModule).createAdaptation
}

await runAsMember(run)
