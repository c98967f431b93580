/**
 * The process of `eldr serve --processes N`: it opens the port, starts the owner and the relays, restarts
 * them when they exit, and stops them in order. Requests do not go through it.
 */
import { rmSync } from 'node:fs'
import { createServer } from 'node:net'
import type { Settings } from '../../config/settings.ts'
import { handleOf, listen } from '../../http/listen.ts'
import { randomReplicaId } from '../replicas/replica-id.ts'
import type { Log } from '../../observe/log/log.ts'
import { failureResult, type ThreadResult } from '../../routing/thread-result.ts'
import { reused, sameAddress, stateFor } from '../replace/handed-state.ts'
import { configuredBy, type Handed, portOf, type Replaceable } from '../replace/messages.ts'
import type { Replacing } from '../replace/successor.ts'
import { PROTOCOL } from './messages.ts'
import { privateFolder } from './private-folder.ts'
import { ownerPath, type OwnerStart, type RelayStart } from './supervisor-messages.ts'
import { ConnectionHandover } from './connection-handover.ts'
import { CHECK_INTERVAL_MS, Member } from './member.ts'
import type { SavedState } from './saved-state.ts'

export interface Processes extends Replaceable {
  readonly url: string
  readonly context: { readonly logLevel: { toggleDebug(): void } }
  stop(): Promise<void>
}

/** `adaptation`: module of live recalibration, for the owner (default: none). */
export async function startProcesses(
  given: Settings,
  log: Log,
  adaptation?: URL,
  { takesOver, replace }: Partial<Replacing> = {},
): Promise<Processes> {
  const settings = withReplicaId(withFormat(given))
  const { host, port, processes, shutdownGraceMs, replaceGraceMs, tls } = settings.server
  const folder = privateFolder()
  const clean = () => rmSync(folder, { recursive: true, force: true })
  // The supervisor accepts all connections and hands them over. If relays accepted them, one that is awake
  // would take all that are waiting.
  const server = createServer({ pauseOnConnect: true, allowHalfOpen: true })
  let saved: SavedState = takesOver === undefined ? {} : stateFor(given, takesOver.handed)
  const { relays: old = [], lastRelay = 0 } = takesOver?.handed ?? {}
  let draining = false
  /** The port of the metrics is free for the owner. */
  let metricsOpen = takesOver === undefined
  const relays: Member[] = []
  /** Of the relays' processes. */
  const ids: number[] = []
  let lastId = lastRelay
  process.once('exit', () => {
    for (const member of [...relays, owner]) member.kill()
    clean()
  })
  const owner = new Member({
    name: 'owner',
    program: 'owner',
    log,
    spawned(child) {
      const running = relays.flatMap(({ isReady }, n) => (isReady ? ids[n]! : []))
      const start: OwnerStart = {
        kind: 'start',
        settings,
        folder,
        saved,
        relays: running,
        old,
        takesOver: !metricsOpen,
        adaptation: adaptation?.href,
      }
      child.send(start)
    },
    ready: () => draining && owner.tell({ kind: 'drain' }),
    received(message) {
      if (message.kind === 'saved') saved = { ...saved, ...message.saved }
      if (message.kind === 'replace') void answer(message.id)
    },
  })
  const handover = new ConnectionHandover(server, relays)
  for (let relay = 1; relay <= processes; relay++) {
    const member = new Member({
      name: `relay-${relay}`,
      program: 'relay',
      log,
      leaveMs: shutdownGraceMs,
      spawned(child) {
        const id = (ids[relay - 1] = ++lastId)
        child.send({ kind: 'start', settings, folder, relay, id } satisfies RelayStart)
      },
      ready: () => handover.relayReady(),
      received(message) {
        if (message.kind === 'taken') handover.confirmed(message.connection)
      },
      pongReceived: ping => handover.pongReceived(member, ping),
      exited() {
        owner.tell({ kind: 'died', id: ids[relay - 1]! })
        handover.relayDied(member)
      },
    })
    relays.push(member)
  }
  const checks = setInterval(() => [owner, ...relays].forEach(member => member.check()), CHECK_INTERVAL_MS)

  async function end(): Promise<void> {
    draining = true
    owner.tell({ kind: 'drain' })
    await Promise.all(relays.map(relay => relay.stop(shutdownGraceMs)))
    server.close() // not awaited: Node would ask the relays, which have exited, for their connections
    handover.close()
    await owner.stop(0)
    clearInterval(checks)
    clean()
  }

  /** Ends when the connections of the relays do. */
  async function leave(): Promise<void> {
    server.close()
    owner.tell({ kind: 'leave' })
    await Promise.all(relays.map(relay => relay.leave(replaceGraceMs)))
    await end()
  }

  async function answer(id: number): Promise<void> {
    const outcome = await Promise.resolve(replace?.()).then(
      (result): ThreadResult => ({ result }),
      (error: unknown) => failureResult(error),
    )
    owner.tell({ kind: 'replaced', id, outcome })
  }

  const moveTo = (path: string) =>
    Promise.all(relays.map(relay => relay.ask('move', { kind: 'move', owner: path })))

  try {
    let address = takesOver === undefined ? await listen(server, host, port) : ''
    await owner.start()
    await Promise.all(relays.map(relay => relay.start()))
    if (takesOver !== undefined) {
      const socket = await takesOver.socket({ path: ownerPath(folder), protocol: PROTOCOL })
      await owner.ask('openMetrics', { kind: 'openMetrics' })
      metricsOpen = true
      address = await listen(server, host, port, reused(socket, sameAddress(given, takesOver.handed)))
    }
    const url = `${tls === undefined ? 'http' : 'https'}://${address}`
    let stopping: Promise<void> | undefined
    return {
      url,
      context: { logLevel: { toggleDebug: () => owner.tell({ kind: 'toggleDebug' }) } },
      async handOut() {
        await owner.ask('handOut', { kind: 'handOut' })
        const handed: Handed = {
          configured: configuredBy(given),
          port: portOf(url),
          saved,
          relays: [...old, ...ids],
          lastRelay: lastId,
        }
        return { handed, listener: handleOf(server) }
      },
      async declareTo({ path, protocol }) {
        metricsOpen = false
        await owner.ask('declare', { kind: 'declare' })
        if (protocol === PROTOCOL) await moveTo(path)
        else log.warn('the new version does not count the requests that run in this one')
      },
      takeBack() {
        metricsOpen = true
        owner.tell({ kind: 'takeBack' })
        void moveTo(ownerPath(folder))
      },
      leave,
      stop: () => (stopping ??= end()),
    }
  } catch (error) {
    await end()
    throw error
  }
}

/** Child processes write to a pipe and cannot tell whether the supervisor's output is a terminal. */
function withFormat(settings: Settings): Settings {
  const { observe } = settings
  if (observe.logFormat !== 'auto') return settings
  return { ...settings, observe: { ...observe, logFormat: process.stderr.isTTY ? 'pretty' : 'json' } }
}

/**
 * Every owner gets the same id, so that other replicas see a new owner as a restart and not as one more
 * replica.
 */
function withReplicaId(settings: Settings): Settings {
  const { replicas } = settings
  return replicas.url === undefined
    ? settings
    : { ...settings, replicas: { ...replicas, id: replicas.id ?? randomReplicaId() } }
}
