/** Whether a port can be had, found out before anything is started. */
import { createServer } from 'node:net'
import { EldrError } from '../errors.ts'

export async function checkPort(host: string, port: number): Promise<void> {
  if (port === 0) return
  const server = createServer()
  try {
    await new Promise<void>((resolve, reject) => server.once('error', reject).listen(port, host, resolve))
  } catch (cause) {
    throw portTaken(host, port, cause as NodeJS.ErrnoException)
  }
  await new Promise(resolve => server.close(resolve))
}

function portTaken(host: string, port: number, cause: NodeJS.ErrnoException): EldrError {
  const found = `${host}:${port} (${cause.code ?? cause.message})`
  const other = `Take another with --port ${port < 65_535 ? port + 1 : port - 1}, or any that is free with --port 0`
  if (cause.code !== 'EADDRINUSE')
    return new EldrError('ELDR_PORT_TAKEN', { found, todo: `${other}.`, cause })
  const who = process.platform === 'win32' ? `netstat -ano | findstr :${port}` : `lsof -i :${port}`
  return new EldrError('ELDR_PORT_TAKEN', {
    found,
    todo: `Something listens there already: \`${who}\` says what. Stop it, or: ${other.replace('Take', 'take')}.`,
    cause,
  })
}
