/** Checks that a port is free before anything is started. */
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
  const other = `use another port (--port ${port < 65_535 ? port + 1 : port - 1}) or any free one (--port 0)`
  if (cause.code !== 'EADDRINUSE')
    return new EldrError('ELDR_PORT_TAKEN', { found, todo: `U${other.slice(1)}.`, cause })
  const command = process.platform === 'win32' ? `netstat -ano | findstr :${port}` : `lsof -i :${port}`
  return new EldrError('ELDR_PORT_TAKEN', {
    found,
    todo: `Another process listens there; \`${command}\` shows it. Stop it, or ${other}.`,
    cause,
  })
}
