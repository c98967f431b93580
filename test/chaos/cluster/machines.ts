/**
 * Where the cluster's programs run: each on its own machine (a network namespace behind a switch, see
 * test/ops/netns), or all on this one, without faults of the network.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { freePort } from '../../free-port.ts'
import { Network } from '../../ops/netns/network.ts'
import { whyNoNamespaces } from '../../ops/netns/root.ts'

export const GATEWAYS = ['gw1', 'gw2'] as const
export const PREFILLS = ['p1', 'p2'] as const
export const DECODES = ['d1', 'd2', 'd3'] as const
export const WORKERS = [...PREFILLS, ...DECODES] as const
/** The observer's paths never have faults. */
export const MACHINES = [...GATEWAYS, 'store', ...WORKERS, 'client', 'watch'] as const
export type Machine = (typeof MACHINES)[number]
export type GatewayName = (typeof GATEWAYS)[number]
export type WorkerName = (typeof WORKERS)[number]

export interface Machines {
  /** Undefined on loopback. */
  readonly network?: Network<Machine>
  address(name: Machine): string
  port(name: Machine): number
  spawn(name: Machine, command: readonly string[], env?: Readonly<Record<string, string>>): ChildProcess
  close(): Promise<void>
}

/** Why there are no machines of their own, or undefined. Processes are signalled directly: root, not sudo. */
export function whyLoopback(): string | undefined {
  return process.getuid?.() === 0 ? whyNoNamespaces() : 'not root'
}

export async function startMachines(seed: number, isLoopback: boolean): Promise<Machines> {
  if (isLoopback) return loopback()
  const network = await Network.start(MACHINES, String(seed))
  return {
    network,
    address: name => network.address(name),
    port: () => 8_000,
    spawn: (name, command, env) => network.spawn(name, command, env),
    close: () => network.close(),
  }
}

async function loopback(): Promise<Machines> {
  const ports = new Map<Machine, number>()
  for (const name of MACHINES) ports.set(name, await freePort())
  const children = new Set<ChildProcess>()
  const killAll = () => children.forEach(child => child.kill('SIGKILL'))
  process.on('exit', killAll)
  return {
    address: () => '127.0.0.1',
    port: name => ports.get(name)!,
    spawn(_name, [program, ...flags], env) {
      const child = spawn(program!, flags, {
        stdio: ['pipe', 'pipe', 'pipe'],
        env: { ...process.env, ...env },
      })
      children.add(child)
      child.once('exit', () => children.delete(child))
      return child
    },
    async close() {
      const exits = [...children].map(child => once(child, 'exit'))
      killAll()
      await Promise.all(exits)
      process.off('exit', killAll)
    },
  }
}
