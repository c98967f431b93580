/** A relay: requests of clients and their streams. Where they go the owner says. Run by the supervisor. */
import type { Socket } from 'node:net'
import { closeLog } from '../observe/log/log-output.ts'
import { createLog } from '../observe/log/log.ts'
import {
  deskPath,
  pagesPath,
  relayPath,
  type RelayStart,
  runAsMember,
  tellSupervisor,
  type ToRelay,
} from '../scale/processes/supervisor-messages.ts'
import { startRelay } from './start-relay.ts'

/** For error events to get to clients. */
const LAST_WORDS_MS = 500

process.on('SIGHUP', () => {})
process.on('SIGUSR2', () => {}) // the supervisor has the owner told, and the owner tells all
await runAsMember(run)

async function run({ settings, folder, relay: number }: RelayStart): Promise<void> {
  const log = createLog(settings.observe).child({ process: `relay-${number}` })
  const relay = await startRelay(settings, log, {
    number,
    desk: deskPath(folder),
    pages: pagesPath(folder),
    own: relayPath(folder, number),
  })
  let stopping = false
  const stop = async () => {
    if (stopping) return
    stopping = true
    await relay.stop()
    await closeLog()
    process.exit(0)
  }
  process.on('message', (message: ToRelay, socket?: Socket) => {
    if (message.kind === 'stop') void stop()
    else if (message.kind === 'left') void relay.leave().then(stop)
    else if (message.kind === 'connection') {
      tellSupervisor({ kind: 'taken', connection: message.connection })
      if (socket !== undefined) relay.accept(socket) // none, where the client is gone already
    }
  })
  // Of an operator who wants this one to be replaced without harm.
  for (const signal of ['SIGTERM', 'SIGINT'] as const)
    process.on(signal, () => tellSupervisor({ kind: 'leaving' }))
  // Clients learn that their stream is over; what the fault was the log says.
  let failed = false
  const fail = (error: unknown) => {
    if (failed) return
    failed = true
    log.fatal({ err: error }, 'a fault of this relay: it ends, and another takes its place')
    void Promise.race([relay.fail(), new Promise(resolve => setTimeout(resolve, LAST_WORDS_MS))])
      .then(closeLog)
      .finally(() => process.exit(1))
  }
  process.on('uncaughtException', fail)
  process.on('unhandledRejection', fail)
}
