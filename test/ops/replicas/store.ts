/**
 * A real Redis or Valkey server on its own port, without persistence. Tests can stop, kill, restart and query
 * it.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createClient } from '@redis/client'
import { tool } from '../tools.ts'
import { freePort } from '../../free-port.ts'

export interface Store {
  readonly url: string
  readonly port: number
  /** Runs one command on a new connection. */
  ask(...command: (string | Buffer)[]): Promise<unknown>
  /** SIGSTOP: the kernel accepts connections, but there is no response. */
  hang(): void
  goOn(): void
  /** SIGKILL; all data is lost. */
  kill(): Promise<void>
  /** Starts an empty store on the same port. */
  start(): Promise<void>
  close(): Promise<void>
}

export interface StoreOptions {
  readonly password?: string
  readonly flags?: readonly string[]
  /** Its self-signed certificate. With it, the store accepts only TLS. */
  readonly tls?: { readonly certFile: string; readonly keyFile: string }
}

export async function startStore({ password, flags = [], tls }: StoreOptions = {}): Promise<Store> {
  const program = process.env['REDIS_SERVER'] ?? tool('store', 'redis-server')
  const folder = mkdtempSync(join(tmpdir(), 'eldr-store-'))
  const port = await freePort()
  const url = `redis${tls ? 's' : ''}://${password === undefined ? '' : `:${password}@`}127.0.0.1:${port}`
  let child: ChildProcess
  async function start(): Promise<void> {
    const auth = password === undefined ? [] : ['--requirepass', password]
    const ports = tls
      ? [
          '--port',
          '0',
          '--tls-port',
          String(port),
          '--tls-cert-file',
          tls.certFile,
          '--tls-key-file',
          tls.keyFile,
          '--tls-ca-cert-file',
          tls.certFile,
          '--tls-auth-clients',
          'no',
        ]
      : ['--port', String(port)]
    child = spawn(
      program,
      [
        ...ports,
        '--bind',
        '127.0.0.1',
        '--save',
        '',
        '--appendonly',
        'no',
        '--dir',
        folder,
        ...auth,
        ...flags,
      ],
      { stdio: ['ignore', 'pipe', 'inherit'] },
    )
    await new Promise<void>((resolve, reject) => {
      let output = ''
      child.stdout!.on('data', (chunk: Buffer) => {
        output += chunk.toString()
        if (output.includes('Ready to accept connections')) resolve()
      })
      child.once('exit', code => reject(new Error(`the store exited with ${String(code)}: ${output}`)))
    })
  }
  async function kill(): Promise<void> {
    if (child.exitCode !== null || child.signalCode !== null) return
    const exited = once(child, 'exit')
    child.kill('SIGKILL')
    await exited
  }
  await start()
  return {
    url,
    port,
    async ask(...command) {
      const client = createClient({
        url,
        RESP: 2,
        ...(tls && { socket: { tls: true as const, ca: readFileSync(tls.certFile) } }),
      })
      await client.connect()
      try {
        return await client.sendCommand(command)
      } finally {
        client.destroy()
      }
    },
    hang: () => void child.kill('SIGSTOP'),
    goOn: () => void child.kill('SIGCONT'),
    kill,
    start,
    async close() {
      await kill()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
