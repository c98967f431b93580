/** An operator who changes things while everything else goes wrong. Every change is in the ledger. */
import { readFileSync } from 'node:fs'
import { createRandom } from '../../../src/math/random.ts'
import type { AdminChange } from '../check/admin-ledger.ts'
import type { Answer } from '../cluster/cluster.ts'
import type { GatewayName } from '../cluster/machines.ts'
import { DRAINED, REMOVED } from '../cluster/observer.ts'
import { signal } from '../cluster/program.ts'
import { nowMs } from '../observation.ts'
import type { Action, Scene } from './adversary.ts'

/** Those that need no artifact. */
const POLICIES = ['jsq', 'union', 'power_of_two', 'round_robin', 'random'] as const
const CONFLICT = 409
const REPLACED_MS = 30_000

/** Sends a change. Without a response the gateway may or may not have made it; with an error it has not. */
export async function change(
  { ledger }: Pick<Scene, 'ledger'>,
  changes: readonly AdminChange[],
  send: () => Promise<Answer>,
): Promise<number | undefined> {
  const confirms = changes.map(one => ledger.attempt(one))
  try {
    const { status } = await send()
    if (status < 300) for (const confirm of confirms) confirm.made(nowMs())
    else if (status < 500) for (const confirm of confirms) confirm.refused()
    return status
  } catch {
    return undefined
  }
}

export const operatorFaults = {
  'change-policy': async (scene, { targets, seed }) => {
    const gateway = targets[0] as GatewayName
    const random = createRandom(seed)
    const policy = POLICIES[random.below(POLICIES.length)]!
    const tau = (1 + random.below(90)) / 100
    const fields = [
      { gateway, field: 'policy', value: policy },
      { gateway, field: 'tau', value: String(tau) },
    ]
    await change(scene, fields, () => scene.call(gateway, 'PUT', '/eldr/policy', { policy, tau }))
  },
  'change-artifact': async (scene, { targets, seed }) => {
    const gateway = targets[0] as GatewayName
    const { artifacts } = scene.cluster
    const { path, sha256 } = artifacts[seed % artifacts.length]!
    // By its path, or uploaded.
    const body = seed % 4 < 2 ? { path } : readFileSync(path)
    await change(scene, [{ gateway, field: 'artifact', value: sha256 }], () =>
      scene.call(gateway, 'POST', '/eldr/artifact', body),
    )
  },
  'drain-worker': async (scene, { targets, seed }) => {
    const gateway = targets[0] as GatewayName
    const random = createRandom(seed)
    const id = DRAINED[random.below(DRAINED.length)]!
    const isDrain = random.uniform() < 0.5
    const value = isDrain ? 'drained' : 'not drained'
    await change(scene, [{ gateway, field: `drain:${id}`, value }], () =>
      scene.call(gateway, 'POST', `/eldr/workers/${id}/${isDrain ? 'drain' : 'undrain'}`),
    )
  },
  'change-workers': async (scene, { targets, seed }) => {
    const gateway = targets[0] as GatewayName
    await (seed % 2 === 0 ? removeWorker(scene, gateway) : addWorker(scene, gateway))
  },
  /** Relays read the new files when they start: one after the other is replaced. */
  'rotate-certificate': async ({ cluster, report }) => {
    const gateway = cluster.gateways.get('gw1')!
    const wanted = gateway.certificates!.rotate()
    const isDone = await withinLimit(
      (async () => {
        for (const role of ['relay-1', 'relay-2'] as const) {
          const pid = gateway.pidOf(role)
          signal(pid, 'SIGTERM')
          await gateway.replaced(role, pid)
        }
      })(),
    )
    const { machines, watch } = cluster
    const shown = async () =>
      watch.certificate(machines.address('gw1'), machines.port('gw1')).catch(() => undefined)
    const found = await shown()
    // Another step may have killed the gateway, or rotated again.
    if (isDone && found !== undefined && ![wanted, gateway.certificates!.fingerprint].includes(found))
      report('certificate not rotated', `gw1 shows ${found} instead of ${wanted}`)
  },
} as const satisfies Record<string, Action>

export async function removeWorker(
  scene: Pick<Scene, 'ledger' | 'call'>,
  gateway: GatewayName,
): Promise<void> {
  const made = [{ gateway, field: `workers:${REMOVED}`, value: 'gone' }]
  await change(scene, made, () => scene.call(gateway, 'DELETE', `/eldr/workers/${REMOVED}`))
}

/** A worker that is still leaving cannot be added yet (409). */
export async function addWorker(
  scene: Pick<Scene, 'ledger' | 'call' | 'cluster'>,
  gateway: GatewayName,
): Promise<boolean> {
  const made = [{ gateway, field: `workers:${REMOVED}`, value: 'there' }]
  const worker = { id: REMOVED, role: 'decode', url: scene.cluster.workerUrl(REMOVED) }
  const status = await change(scene, made, () => scene.call(gateway, 'POST', '/eldr/workers', worker))
  return status !== undefined && status < CONFLICT
}

async function withinLimit(work: Promise<void>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<boolean>(resolve => (timer = setTimeout(() => resolve(false), REPLACED_MS)))
  return Promise.race([work.then(() => true), late]).finally(() => clearTimeout(timer))
}
