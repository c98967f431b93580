/** Kills, stops, slows down and restarts workers, the store, gateways and their processes; fills disks. */
import type { Gateway, Role } from '../cluster/gateway.ts'
import type { GatewayName, WorkerName } from '../cluster/machines.ts'
import { type Program, signal, slowDown } from '../cluster/program.ts'
import { nowMs } from '../observation.ts'
import type { Action, Scene } from './adversary.ts'
import type { Step } from './schedule.ts'

const workerOf = ({ cluster }: Scene, { targets }: Step) => cluster.workers.get(targets[0] as WorkerName)!

function placeOf({ cluster }: Scene, { targets }: Step): { gateway: Gateway; role: Role } {
  const [name, role] = targets[0]!.split('/') as [GatewayName, Role]
  return { gateway: cluster.gateways.get(name)!, role }
}

/** Also undoes SIGSTOP that reached another process of the place meanwhile. */
function stop(pid: number | undefined): () => void {
  signal(pid, 'SIGSTOP')
  return () => signal(pid, 'SIGCONT')
}

async function kill(program: Program): Promise<() => Promise<void>> {
  await program.end('SIGKILL')
  return () => program.start()
}

const killRole: Action = async (scene, step) => {
  const { gateway, role } = placeOf(scene, step)
  const pid = gateway.pidOf(role)
  signal(pid, 'SIGKILL')
  await gateway.replaced(role, pid)
}

const stopRole: Action = async (scene, step) => {
  const { gateway, role } = placeOf(scene, step)
  return stop(gateway.pidOf(role))
}

function endGateway(how: 'SIGKILL' | 'SIGTERM'): Action {
  return async (scene, step) => {
    const { gateway } = placeOf(scene, step)
    scene.ledger.gatewayRestarted(gateway.name, nowMs())
    await gateway.program.end(how)
    // What was confirmed while it ended is lost as well.
    scene.ledger.gatewayRestarted(gateway.name, nowMs())
    return () => gateway.program.start()
  }
}

export const processFaults = {
  'kill-worker': (scene, step) => kill(workerOf(scene, step)),
  'stop-worker': async (scene, step) => stop(workerOf(scene, step).pid),
  'slow-worker': async (scene, step) => slowDown(() => [workerOf(scene, step).pid]),
  'kill-relay': killRole,
  'stop-relay': stopRole,
  'kill-owner': killRole,
  'stop-owner': stopRole,
  'drain-relay': async (scene, step) => {
    const { gateway, role } = placeOf(scene, step)
    const pid = gateway.pidOf(role)
    signal(pid, 'SIGTERM')
    await gateway.replaced(role, pid)
  },
  'slow-gateway': async (scene, step) => {
    const { gateway } = placeOf(scene, step)
    return slowDown(() => gateway.processes().map(({ pid }) => pid))
  },
  'kill-gateway': endGateway('SIGKILL'),
  'restart-gateway': endGateway('SIGTERM'),
  'kill-store': async ({ cluster, ledger }) => {
    ledger.storeDisturbed()
    return kill(cluster.store)
  },
  'stop-store': async ({ cluster, ledger }) => {
    ledger.storeDisturbed()
    return stop(cluster.store.pid)
  },
  'fill-disk': async (scene, step) => placeOf(scene, step).gateway.disk.fill?.(),
} as const satisfies Record<string, Action>
