/**
 * A real DNS server, dnsmasq, on a port of its own: addresses in a file that it reads again when told, SRV
 * records from its start on.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface, type Interface } from 'node:readline'
import { freePort } from '../../free-port.ts'

const PROGRAM = process.env['DNSMASQ'] ?? 'dnsmasq'

export interface Dnsmasq {
  /** As settings want it. */
  readonly address: string
  /** Replaces all addresses: by name. Resolves when the server has read them. */
  hosts(addresses: Readonly<Record<string, readonly string[]>>): Promise<void>
  stop(): Promise<void>
  /** Listens again where it did, with the same addresses. */
  start(): Promise<void>
  close(): Promise<void>
}

export async function startDnsmasq(domain: string, options: readonly string[] = []): Promise<Dnsmasq> {
  const folder = mkdtempSync(join(tmpdir(), 'eldr-dnsmasq-'))
  const file = join(folder, 'hosts')
  writeFileSync(file, '')
  const port = await freePort()
  let child: ChildProcess
  let lines: Interface
  const said = (wanted: RegExp) =>
    new Promise<void>((resolve, reject) => {
      const look = (line: string) => {
        if (!wanted.test(line)) return
        lines.off('line', look)
        resolve()
      }
      lines.on('line', look)
      child.once('exit', code => reject(new Error(`dnsmasq ended with ${String(code)}`)))
    })
  async function start(): Promise<void> {
    const flags = [
      '--keep-in-foreground',
      '--log-facility=-',
      '--conf-file=/dev/null',
      '--no-resolv',
      '--no-hosts',
      '--pid-file',
      '--user=',
      '--listen-address=127.0.0.1',
      '--bind-interfaces',
      '--local-ttl=1',
      `--port=${port}`,
      `--addn-hosts=${file}`,
      `--local=/${domain}/`,
      ...options,
    ]
    const path = `${process.env['PATH'] ?? ''}:/usr/sbin:/sbin`
    child = spawn(PROGRAM, flags, {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, PATH: path },
    })
    lines = createInterface({ input: child.stderr! })
    await said(/read .*hosts - /)
  }
  async function stop(): Promise<void> {
    const ended = new Promise(resolve => child.removeAllListeners('exit').once('exit', resolve))
    child.kill('SIGTERM')
    await ended
  }
  await start()
  return {
    address: `127.0.0.1:${port}`,
    start,
    async hosts(addresses) {
      writeFileSync(
        file,
        Object.entries(addresses)
          .flatMap(([name, list]) => list.map(address => `${address} ${name}\n`))
          .join(''),
      )
      const read = said(/read .*hosts - /)
      child.kill('SIGHUP')
      await read
    },
    stop,
    async close() {
      if (child.exitCode === null && child.signalCode === null) await stop()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
