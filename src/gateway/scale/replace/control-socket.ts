/**
 * The socket on which `eldr serve --replace` reaches the gateway that runs. It is in a folder that only this
 * user can enter, because the command that it carries is run; the name is the address of the gateway.
 */
import { chmodSync, lstatSync, mkdirSync, renameSync, rmSync } from 'node:fs'
import { createConnection, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { EldrError } from '../../../errors.ts'
import { failureResult, type ThreadResult, unwrapResult } from '../../routing/thread-result.ts'
import type { Command, Successor } from './messages.ts'

/** A command line with its environment. */
const MAX_BYTES = 4 * 1024 * 1024

export interface ControlSocket {
  /** The gateway has another address now. */
  rename(address: string): void
  close(): void
}

/** `address`: HOST:PORT. Throws if there is no safe folder for it. */
export async function openControlSocket(
  address: string,
  replace: (command: Command) => Promise<Successor>,
): Promise<ControlSocket> {
  let path = pathFor(address)
  rmSync(path, { force: true }) // left behind by a gateway that was killed: its port is ours now
  const server: Server = createServer({ allowHalfOpen: true }, socket => void answer(socket, replace))
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(path, resolve))
  server.unref()
  const remove = () => rmSync(path, { force: true })
  process.once('exit', remove)
  return {
    rename(next) {
      const to = pathFor(next)
      if (to !== path) renameSync(path, to)
      path = to
    },
    close() {
      server.close()
      process.off('exit', remove) // another gateway may have the address by then
      remove()
    },
  }
}

/** Asks the gateway at this address to run a command in its place. Resolves when that serves. */
export async function askToReplace(address: string, command: Command): Promise<Successor> {
  const path = pathFor(address)
  const socket = createConnection(path)
  const text = await new Promise<string>((resolve, reject) => {
    socket.once('error', cause =>
      reject(new EldrError('ELDR_REPLACE_NONE', { found: `no gateway of this user at ${address}`, cause })),
    )
    socket.end(JSON.stringify(command))
    readAll(socket).then(resolve, reject)
  })
  if (text === '') throw new EldrError('ELDR_REPLACE_FAILED', { found: 'the gateway closed the connection' })
  return unwrapResult(JSON.parse(text) as ThreadResult) as Successor
}

async function answer(socket: Socket, replace: (command: Command) => Promise<Successor>): Promise<void> {
  socket.on('error', () => {})
  let outcome: ThreadResult
  try {
    outcome = { result: await replace(JSON.parse(await readAll(socket)) as Command) }
  } catch (error) {
    outcome = failureResult(error)
  }
  socket.end(JSON.stringify(outcome))
}

function readAll(socket: Socket): Promise<string> {
  let text = ''
  return new Promise((resolve, reject) => {
    socket.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk
      if (text.length > MAX_BYTES) socket.destroy(new RangeError('message too long'))
    })
    socket.once('end', () => resolve(text))
    socket.once('error', reject)
  })
}

function pathFor(address: string): string {
  return join(ownFolder(), address.replaceAll(/[^\w.:-]/g, '_'))
}

/** Another user may have created a folder of this name. */
function ownFolder(): string {
  const uid = process.getuid?.() ?? 0
  const folder = join(tmpdir(), `eldr-${uid}`)
  try {
    mkdirSync(folder, { mode: 0o700 })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
  const found = lstatSync(folder)
  if (!found.isDirectory() || found.uid !== uid)
    throw new EldrError('ELDR_FILE_UNWRITABLE', { file: folder, found: 'a folder of another user' })
  if ((found.mode & 0o077) !== 0) chmodSync(folder, 0o700)
  return folder
}
