/**
 * The process of `eldr serve --processes N`: it opens the port, starts the owner and the relays, restarts
 * them when they exit, and stops them in order. Requests do not go through it.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { EldrError } from '../../../errors.ts'
import type { Settings } from '../../config/settings.ts'
import { listen } from '../../http/listen.ts'
import { randomReplicaId } from '../replicas/replica-id.ts'
import type { Log } from '../../observe/log/log.ts'
import { type OwnerStart, relayPath, type RelayStart } from './supervisor-messages.ts'
import { ConnectionHandover } from './connection-handover.ts'
import { CHECK_INTERVAL_MS, Member } from './member.ts'
import type { SavedState } from './saved-state.ts'

export interface Processes {
  readonly url: string
  readonly context: { readonly logLevel: { toggleDebug(): void } }
  stop(): Promise<void>
}

/** Length of a Unix-domain socket path that every system accepts. */
const MAX_PATH_BYTES = 100

/** `adaptation`: module of live recalibration, for the owner (default: none). */
export async function startProcesses(given: Settings, log: Log, adaptation?: URL): Promise<Processes> {
  const settings = withReplicaId(withFormat(given))
  const { host, port, processes, shutdownGraceMs, tls } = settings.server
  const folder = privateFolder()
  const clean = () => rmSync(folder, { recursive: true, force: true })
  // The supervisor accepts all connections and hands them over. If relays accepted them, one that is awake
  // would take all that are waiting.
  const server = createServer({ pauseOnConnect: true, allowHalfOpen: true })
  let saved: SavedState = {}
  let draining = false
  const relays: Member[] = []
  /** Of the relays' processes. */
  const ids: number[] = []
  let lastId = 0
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
        adaptation: adaptation?.href,
      }
      child.send(start)
    },
    ready: () => draining && owner.tell({ kind: 'drain' }),
    received(message) {
      if (message.kind === 'saved') saved = { ...saved, ...message.saved }
    },
  })
  const handover = new ConnectionHandover(server, relays)
  for (let relay = 1; relay <= processes; relay++) {
    const member = new Member({
      name: `relay-${relay}`,
      program: 'relay',
      log,
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

  try {
    const address = await listen(server, host, port)
    await owner.start()
    await Promise.all(relays.map(relay => relay.start()))
    let stopping: Promise<void> | undefined
    return {
      url: `${tls === undefined ? 'http' : 'https'}://${address}`,
      context: { logLevel: { toggleDebug: () => owner.tell({ kind: 'toggleDebug' }) } },
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

/** A folder that only this user can enter, so that no other user can connect to the owner. */
function privateFolder(): string {
  let folder: string
  try {
    folder = mkdtempSync(join(tmpdir(), 'eldr-'))
  } catch (cause) {
    throw new EldrError('ELDR_FILE_UNWRITABLE', {
      file: tmpdir(),
      found: cause instanceof Error ? cause.message : String(cause),
      cause,
    })
  }
  if (Buffer.byteLength(relayPath(folder, 1_000)) <= MAX_PATH_BYTES) return folder
  rmSync(folder, { recursive: true, force: true })
  throw new EldrError('ELDR_USAGE', {
    found: `the temporary folder ${tmpdir()}`,
    expected: 'a path short enough for a socket',
    todo: 'Set TMPDIR to a shorter one, such as /tmp.',
  })
}
