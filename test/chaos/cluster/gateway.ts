/** A gateway of an owner and two relays, with its processes, its state folder and its log. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { PROGRAM } from '../../worker/processes.ts'
import type { Certificates } from './certificates.ts'
import { type GatewayName, type Machine, type Machines, PREFILLS, WORKERS } from './machines.ts'
import { Program } from './program.ts'
import { ADMIN_TOKEN, GATEWAY_SETTINGS, POLICY, SERVER_SETTINGS, TAU } from './settings.ts'
import { createStateDisk, type StateDisk } from './state-disk.ts'

export interface GatewayOptions {
  readonly name: GatewayName
  readonly folder: string
  readonly storeUrl: string
  readonly workerUrl: (name: Machine) => string
  /** With it, clients connect by TLS. */
  readonly certificates?: Certificates
}

/** Log lines that report a bug, whatever the adversary does. */
const BUG = /\(bug\)|internal error|unhandled|uncaught|Warning: |(Type|Range|Reference)Error|AssertionError/i
const ROLES = ['owner', 'relay-1', 'relay-2'] as const
export type Role = (typeof ROLES)[number]

export class Gateway {
  readonly name: GatewayName
  readonly url: string
  readonly disk: StateDisk
  readonly bugs: string[] = []
  readonly certificates: Certificates | undefined
  readonly program: Program
  readonly #pids = new Map<string, number>()
  #waiters: (() => void)[] = []

  constructor(machines: Machines, { name, folder, storeUrl, workerUrl, certificates }: GatewayOptions) {
    this.name = name
    this.certificates = certificates
    this.url = `http${certificates === undefined ? '' : 's'}://${machines.address(name)}:${machines.port(name)}`
    this.disk = createStateDisk(folder, `${name}-tmp`)
    const workersOf = (isPrefill: boolean) =>
      WORKERS.filter(worker => PREFILLS.includes(worker as never) === isPrefill).map(id => ({
        id,
        url: workerUrl(id),
      }))
    const file = join(folder, `${name}.json`)
    const tls = certificates && { certFile: certificates.certFile, keyFile: certificates.keyFile }
    const settings = {
      ...GATEWAY_SETTINGS,
      server: { ...SERVER_SETTINGS, host: machines.address(name), port: machines.port(name), tls },
      workers: { prefill: workersOf(true), decode: workersOf(false) },
      routing: { policy: POLICY, tau: TAU, refit: 'off' },
      replicas: { ...GATEWAY_SETTINGS.replicas, url: storeUrl, id: name },
    }
    writeFileSync(file, JSON.stringify(settings))
    this.program = new Program(machines, {
      name,
      command: [process.execPath, '--trace-warnings', PROGRAM, 'serve', '--config', file],
      env: { TMPDIR: this.disk.folder, ELDR_ADMIN_TOKEN: ADMIN_TOKEN },
      ready: 'listening on',
      line: line => this.#read(line),
    })
  }

  pidOf(role: Role): number | undefined {
    return this.#pids.get(role)
  }

  /** By name; the supervisor has the name of the gateway. */
  processes(): { readonly name: string; readonly pid: number | undefined }[] {
    return [
      { name: this.name, pid: this.program.pid },
      ...ROLES.map(role => ({ name: `${this.name}/${role}`, pid: this.#pids.get(role) })),
    ]
  }

  /** Resolves when another process has taken this role, or the gateway has ended. */
  async replaced(role: Role, pid: number | undefined): Promise<void> {
    while (this.program.isRunning && this.#pids.get(role) === pid)
      await new Promise<void>(resolve => {
        this.#waiters.push(resolve)
        setTimeout(resolve, 1_000)
      })
  }

  #read(line: string): void {
    if (BUG.test(line)) this.bugs.push(line.slice(0, 1_000))
    if (!line.includes('"process is ready"')) return
    const { process: role, pid } = JSON.parse(line) as { process: string; pid: number }
    this.#pids.set(role, pid)
    const waiters = this.#waiters
    this.#waiters = []
    for (const resolve of waiters) resolve()
  }
}
