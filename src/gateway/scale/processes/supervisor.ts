/**
 * The process that was started as `eldr serve --processes N`: it opens the port, starts the owner and the relays, starts anew whoever
 * ends, and stops them in order. Requests do not go through it.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { EldrError } from '../../../errors.ts'
import type { Settings } from '../../config/settings.ts'
import { listen } from '../../http/listen.ts'
import { madeUpId } from '../replicas/replica-id.ts'
import type { Log } from '../../observe/log/log.ts'
import { type OwnerStart, relayPath, type RelayStart } from './supervisor-messages.ts'
import { Hands } from './connection-handover.ts'
import { LOOK_MS, Member } from './member.ts'
import type { SavedState } from './saved-state.ts'

export interface Processes {
  readonly url: string
  readonly context: { readonly logLevel: { toggleDebug(): void } }
  stop(): Promise<void>
}

/** Of the name of a Unix-domain socket, on every system that has them. */
const MOST_PATH_BYTES = 100

export async function startProcesses(given: Settings, log: Log): Promise<Processes> {
  const settings = withReplicaId(withFormat(given))
  const { host, port, processes, shutdownGraceMs, tls } = settings.server
  const folder = privateFolder()
  const clean = () => rmSync(folder, { recursive: true, force: true })
  // It accepts all connections and hands them on. Were relays to accept by themselves, whichever is awake would take all that have come.
  const server = createServer({ pauseOnConnect: true, allowHalfOpen: true })
  let saved: SavedState = {}
  let draining = false
  const relays: Member[] = []
  process.once('exit', () => {
    for (const member of [...relays, owner]) member.kill()
    clean()
  })
  const owner = new Member({
    name: 'owner',
    program: 'owner',
    log,
    begin(child) {
      const running = relays.flatMap(({ isReady }, n) => (isReady ? [n + 1] : []))
      child.send({ kind: 'start', settings, folder, saved, relays: running } satisfies OwnerStart)
    },
    ready: () => draining && owner.tell({ kind: 'drain' }),
    heard(message) {
      if (message.kind === 'saved') saved = { ...saved, ...message.saved }
    },
  })
  const hands = new Hands(server, relays)
  for (let relay = 1; relay <= processes; relay++) {
    const member = new Member({
      name: `relay-${relay}`,
      program: 'relay',
      log,
      begin: child => child.send({ kind: 'start', settings, folder, relay } satisfies RelayStart),
      ready: () => hands.again(),
      heard(message) {
        if (message.kind === 'taken') hands.taken(message.connection)
      },
      answered: ping => hands.answered(member, ping),
      died() {
        owner.tell({ kind: 'died', relay })
        hands.died(member)
      },
    })
    relays.push(member)
  }
  const looking = setInterval(() => [owner, ...relays].forEach(member => member.look()), LOOK_MS)

  async function end(): Promise<void> {
    draining = true
    owner.tell({ kind: 'drain' })
    await Promise.all(relays.map(relay => relay.stop(shutdownGraceMs)))
    server.close() // not waited for: Node would ask relays, which are gone, for their connections
    hands.close()
    await owner.stop(0)
    clearInterval(looking)
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

/** Processes write to a pipe, and cannot see whether a person looks at the end of it. */
function withFormat(settings: Settings): Settings {
  const { observe } = settings
  if (observe.logFormat !== 'auto') return settings
  return { ...settings, observe: { ...observe, logFormat: process.stderr.isTTY ? 'pretty' : 'json' } }
}

/** The same for every owner: to the other replicas a new one then is the old one started anew, and not one more beside it. */
function withReplicaId(settings: Settings): Settings {
  const { replicas } = settings
  return replicas.url === undefined
    ? settings
    : { ...settings, replicas: { ...replicas, id: replicas.id ?? madeUpId() } }
}

/** Nobody else may ask the owner: the folder is the user's own. */
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
  if (Buffer.byteLength(relayPath(folder, 1_000)) <= MOST_PATH_BYTES) return folder
  rmSync(folder, { recursive: true, force: true })
  throw new EldrError('ELDR_USAGE', {
    found: `the temporary folder ${tmpdir()}`,
    expected: 'a path short enough for a socket',
    todo: 'Set TMPDIR to a shorter one, such as /tmp.',
  })
}
