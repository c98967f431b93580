/** Clients that leave in the middle of their streams, and clients that send nonsense. */
import type { GatewayName } from '../cluster/machines.ts'
import { type BrokenKind, MUST_REFUSE } from '../load/broken-clients.ts'
import type { Action } from './adversary.ts'

const SHARE_LEAVING = 0.35
const AT_ONCE = 3

export const clientFaults = {
  'leave-streams': async ({ cluster }, { seed }) => void (await cluster.client.leave(SHARE_LEAVING, seed)),
  'broken-client': async ({ cluster, report }, { targets }) => {
    const [gateway, kind] = targets[0]!.split(':') as [GatewayName, BrokenKind]
    const { url } = cluster.gateways.get(gateway)!
    const results = await Promise.all(Array.from({ length: AT_ONCE }, () => cluster.client.broken(kind, url)))
    for (const { status } of results)
      if (status !== undefined && status < 400 && MUST_REFUSE.has(kind))
        report('invalid request accepted', `${kind} at ${gateway}: status ${status}`)
  },
} as const satisfies Record<string, Action>
