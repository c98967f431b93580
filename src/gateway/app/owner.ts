/** The owner: a gateway as it is in one process, but for the requests, which come to the relays. Run by the supervisor. */
import { rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { resolve } from 'node:path'
import type { SeenRequest } from '../control/admin/admin-context.ts'
import { setClientAddress } from '../http/auth.ts'
import { createLog } from '../observe/log/log.ts'
import type { LogLevelControl } from '../observe/log/log-level.ts'
import { closeLog } from '../observe/log/log-output.ts'
import type { Hosting } from './hosting.ts'
import { type Gateway, startGateway } from './start-gateway.ts'
import {
  deskPath,
  type OwnerStart,
  pagesPath,
  runAsMember,
  tellSupervisor,
  type ToOwner,
} from '../scale/processes/supervisor-messages.ts'
import { MergedMetrics, type MetricsJson, ownPart } from '../scale/processes/merged-metrics.ts'
import { TELL } from '../scale/processes/messages.ts'
import { KeptArtifact } from '../scale/processes/kept-artifact.ts'
import { FROM_HEADER } from '../scale/processes/owner-pages.ts'
import { OwnerServer } from '../scale/processes/owner-server.ts'
import {
  addSaved,
  levelOf,
  Memories,
  restoreLevel,
  routingOf,
  type SavedState,
  savedWorkers,
  settingsWith,
} from '../scale/processes/saved-state.ts'

/** How long a relay may take to tell something. */
const REPORT_MS = 1_000
/** So much of what a relay has counted may be lost with it. */
const LOOK_MS = 5_000
/** How long questions wait for relays to say what they have, and for workers to be there again. */
const DECLARE_MS = 1_500

// Told by the supervisor alone: a signal to the whole group is for it, and relays still need the owner.
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR2'] as const) process.on(signal, () => {})

async function run({ settings: given, folder, saved, relays }: OwnerStart): Promise<void> {
  process.prependListener('disconnect', () => rmSync(folder, { recursive: true, force: true }))
  const save = (part: SavedState) => tellSupervisor({ kind: 'saved', saved: part })
  const { tls: _, ...server } = given.server
  const { endpoint: __, ...traces } = given.observe.traces
  const settings = settingsWith({ ...given, server, observe: { ...given.observe, traces } }, saved)
  const log = createLog(settings.observe).child({ process: 'owner' })
  /** What comes before there is anybody to hear it. */
  const early: ToOwner[] = []
  let hear = (message: ToOwner): unknown => early.push(message)
  process.on('message', (message: ToOwner) => hear(message))
  const merged = new MergedMetrics(saved.kept, saved.seen)
  if (saved.own !== undefined) await merged.keep(saved.own)
  for (const path of [pagesPath(folder), deskPath(folder)]) rmSync(path, { force: true })

  const memories = new Memories(saved.discovery)
  const kept = new KeptArtifact(folder, saved.artifact?.path, log, artifact => save({ artifact }))

  /** What each relay says, in no order; whoever says nothing in time, or is gone when all have spoken, is left out. */
  const askAll = async <T>(kind: number, about: string): Promise<{ relay: number; report: T }[]> => {
    const asked = [...(desk?.relays ?? [])].map(async relay => ({
      relay,
      report: await relay.ask(kind, about, REPORT_MS),
    }))
    const answers = await Promise.all(asked)
    const here = new Set(desk?.relays)
    return answers.flatMap(({ relay, report }) =>
      here.has(relay) && relay.number !== undefined && report !== undefined
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
    ...(saved.workers && { addWorkers: registry => addSaved(registry, saved) }),
    elsewhere: {
      request: async id => (await askAll<SeenRequest>(TELL.request, id)).map(({ report }) => report),
    },
    artifactLoaded: (path, shownAs) => kept.loaded(resolve(path), shownAs),
    ...(saved.artifact && { artifactShownAs: saved.artifact.shownAs }),
    memoryOf: source => memories.of(source),
    levelChanged() {
      desk?.levelChanged()
      if (level !== undefined) save(levelOf(level.view()))
    },
    routingChanged: change => save(routingOf(change)),
  }
  // Named before it is made: what the gateway tells of while it begins concerns nobody yet.
  let desk: OwnerServer | undefined
  let level: LogLevelControl | undefined
  const gateway: Gateway = await startGateway(settings, log, { hosting })
  const { registry, router, budget, health, restarts, insight, metrics, logLevel } = gateway.context
  level = logLevel
  const { artifact: first } = given.routing
  if (saved.artifact === undefined && first !== undefined) await kept.loaded(resolve(first), first)
  if (saved.clusters !== undefined) void gateway.control.restoreClusters(saved.clusters)
  if (saved.logLevel !== undefined) restoreLevel(logLevel, saved.logLevel)
  const all = (desk = new OwnerServer(
    {
      placement: gateway.placement,
      registry,
      router,
      admission: gateway.admission,
      budget,
      health,
      restarts,
      pace: insight.pace,
      log,
      logLevel: () => log.level,
    },
    { relays, roles: saved.ready ?? [], mostMs: DECLARE_MS },
  ))

  const ownMetrics = async () => (await metrics.registry.getMetricsAsJSON()) as MetricsJson
  const look = async () => {
    for (const { relay, report } of await askAll<MetricsJson>(TELL.metrics, '')) merged.saw(relay, report)
  }
  const keepCounts = async () => {
    await look()
    const own = await ownMetrics()
    save({ own: ownPart(own), seen: merged.seen })
    return own
  }
  // Whatever somebody has read is kept: a counter that falls would be taken for one that began again.
  metrics.text = async () => merged.text(await keepCounts())
  all.lastWords = (relay, report) => merged.saw(relay, report as MetricsJson)
  const gone = async (relay: number) => {
    await merged.gone(relay)
    save({ kept: merged.kept, seen: merged.seen })
  }
  all.gone = relay => void gone(relay)
  const looking = setInterval(() => void keepCounts(), LOOK_MS)
  registry.subscribe(({ kind, worker }) => {
    if (kind === 'forgotten') void merged.forgetWorker(worker.id)
    if (!kind.startsWith('breaker_')) save({ ...savedWorkers(registry), ...memories.saved })
  })
  // Those that died with the last owner, or while there was none.
  for (const relay of Object.keys(merged.seen).map(Number))
    if (!relays.includes(relay)) await merged.gone(relay)
  save({ ...savedWorkers(registry), ...memories.saved, kept: merged.kept, seen: merged.seen, own: [] })

  const listener = createServer(socket => all.connected(socket))
  await new Promise<void>((listening, failed) =>
    listener.once('error', failed).listen(deskPath(folder), listening),
  )
  hear = message => {
    if (message.kind === 'died') {
      all.relayDied(message.relay)
      void gone(message.relay)
    } else if (message.kind === 'drain') gateway.drain()
    else if (message.kind === 'toggleDebug') logLevel.toggleDebug()
    else if (message.kind === 'stop') void stop()
  }
  early.forEach(message => hear(message))
  async function stop(): Promise<void> {
    clearInterval(looking)
    listener.close()
    all.close()
    await gateway.stop()
    await closeLog()
    process.exit(0)
  }
}

await runAsMember(run)
