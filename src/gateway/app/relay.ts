/** A relay: serves requests of clients and their streams. The owner places them. Run by the supervisor. */
import { closeLog } from '../observe/log/log-output.ts'
import { createLog } from '../observe/log/log.ts'
import {
  type Inbox,
  ownerPath,
  pagesPath,
  relayPath,
  type RelayStart,
  runAsMember,
  tellSupervisor,
} from '../scale/processes/supervisor-messages.ts'
import { startRelay } from './start-relay.ts'

/** Time for error events to reach clients. */
const FAIL_MS = 500

process.on('SIGHUP', () => {})
process.on('SIGUSR2', () => {}) // the supervisor tells the owner, which tells all relays
await runAsMember(run)

async function run({ settings, folder, relay: number, id }: RelayStart, inbox: Inbox): Promise<void> {
  const log = createLog(settings.observe).child({ process: `relay-${number}` })
  const relay = await startRelay(settings, log, {
    id,
    owner: ownerPath(folder),
    pages: pagesPath(folder),
    own: relayPath(folder, number),
  })
  let stopping = false
  const stop = async (graceMs?: number) => {
    if (stopping) return
    stopping = true
    await relay.stop(graceMs)
    await closeLog()
    process.exit(0)
  }
  inbox.listen((message, socket) => {
    if (message.kind === 'stop') void stop()
    else if (message.kind === 'left') void relay.leave(message.graceMs).then(() => stop(0))
    else if (message.kind === 'move')
      void relay.moveTo(message.owner).then(() => tellSupervisor({ kind: 'done', step: 'move' }))
    else if (message.kind === 'connection') {
      tellSupervisor({ kind: 'taken', connection: message.connection })
      if (socket !== undefined) relay.accept(socket) // undefined if the client has disconnected
    }
  })
  // An operator replaces this relay without breaking streams.
  for (const signal of ['SIGTERM', 'SIGINT'] as const)
    process.on(signal, () => tellSupervisor({ kind: 'leaving' }))
  // Clients get an error event; the log has the cause.
  let failed = false
  const fail = (error: unknown) => {
    if (failed) return
    failed = true
    log.fatal({ err: error }, 'internal error in this relay: exiting, to be restarted')
    void Promise.race([relay.fail(), new Promise(resolve => setTimeout(resolve, FAIL_MS))])
      .then(closeLog)
      .finally(() => process.exit(1))
  }
  process.on('uncaughtException', fail)
  process.on('unhandledRejection', fail)
}
