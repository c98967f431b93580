/**
 * An owner without its process, for tests: registry, router and owner server on a real socket, and relays
 * that connect to it.
 */
import { createServer } from 'node:net'
import { join } from 'node:path'
import { Registry } from '../../src/cluster/registry.ts'
import { LoadTracker } from '../../src/cluster/tickets.ts'
import type { Artifact } from '../../src/fit/artifact.ts'
import { Admission, type AdmissionLimits } from '../../src/gateway/http/admission.ts'
import { createLog } from '../../src/gateway/observe/log/log.ts'
import { Metrics } from '../../src/gateway/observe/metrics/metrics.ts'
import { localPlacementClient } from '../../src/gateway/routing/placement-client.ts'
import { type StartConditions, OwnerServer } from '../../src/gateway/scale/processes/owner-server.ts'
import { type LinkOptions, RelayLink } from '../../src/gateway/scale/processes/relay-link.ts'
import { RemoteAdmission } from '../../src/gateway/scale/processes/remote-admission.ts'
import { remotePlacementClient } from '../../src/gateway/scale/processes/remote-placement-client.ts'
import { Decisions } from '../../src/gateway/observe/decisions.ts'
import { RetryBudget } from '../../src/gateway/routing/retry-budget.ts'
import { Router } from '../../src/gateway/routing/router.ts'
import { createRoutingTable } from '../../src/gateway/routing/routing-table.ts'
import { createRandom } from '../../src/math/random.ts'
import type { PolicyName } from '../../src/policy/decode-policy.ts'
import { createPrefillPolicy } from '../../src/policy/prefill-policy.ts'
import { SHAPE } from './cluster.ts'

export const WORKERS = 4
const BREAKER = {
  consecutiveFailures: 3,
  windowMs: 1e6,
  windowRequests: 1e6,
  windowFailureShare: 1,
  openMs: 1e6,
}
const NO_LIMITS: AdmissionLimits = { maxConcurrentRequests: 0, queueSize: 0, queueTimeoutMs: 1_000 }

export interface DeciderOptions {
  readonly policy: PolicyName
  readonly artifact?: Artifact
  readonly limits?: AdmissionLimits
}

/** The parts that decide, in one process; deterministic for the same options. */
export function createDecider({ policy, artifact, limits = NO_LIMITS }: DeciderOptions) {
  const tracker = new LoadTracker()
  const registry = new Registry(tracker, BREAKER)
  for (const role of ['prefill', 'decode'] as const)
    for (let n = 0; n < WORKERS; n++) {
      const id = `${role}-${n}`
      registry.add({ id, role, url: `http://${id}:8000` })
      registry.setHealth(id, true)
    }
  const random = createRandom(11)
  const result = createRoutingTable({
    policy,
    tau: 0.1,
    workers: WORKERS,
    minCovered: 0.5,
    shape: SHAPE,
    artifact,
  })
  if (result.kind === 'missing') throw new Error(result.missing)
  const { table } = result
  const router = new Router({
    registry,
    decisions: new Decisions({ metrics: new Metrics(), kept: 0 }),
    prefillPolicy: createPrefillPolicy('prefix_hash'),
    table,
    random: () => random.uniform(),
  })
  const budget = new RetryBudget(0.2)
  return {
    tracker,
    registry,
    router,
    table,
    budget,
    admission: new Admission(limits),
    placement: localPlacementClient({ registry, router, budget, resumeBudget: new RetryBudget(1) }),
  }
}

export type Decider = ReturnType<typeof createDecider>

/** Paces and failures reported by relays. */
export interface Told {
  readonly paces: [what: string, name: string, ms: number][]
  readonly failures: string[]
  readonly engines: [worker: string, engine: string][]
}

export async function startOwner(folder: string, decider: Decider, awaited: Partial<StartConditions> = {}) {
  const told: Told = { paces: [], failures: [], engines: [] }
  const pace = (what: string) => (name: string, ms: number) => void told.paces.push([what, name, ms])
  const server = new OwnerServer(
    {
      ...decider,
      health: { passiveFailure: id => void told.failures.push(id) },
      restarts: { sawEngineId: (worker, engine) => void told.engines.push([worker, engine]) },
      pace: { firstByte: pace('firstByte'), stream: pace('stream'), onWorker: pace('onWorker') },
      log: createLog({ logLevel: 'silent', logFormat: 'json' }),
      logLevel: () => 'info',
    },
    { relays: [], roles: [], timeoutMs: 5_000, ...awaited },
  )
  const path = join(folder, 'owner')
  const sockets = new Set<{ destroy(): void }>()
  const listener = createServer(socket => {
    sockets.add(socket)
    server.connected(socket)
  })
  await new Promise<void>(resolve => listener.listen(path, resolve))
  return {
    server,
    told,
    path,
    /** As if its process were killed: sockets close without a message. */
    async die(): Promise<void> {
      const closed = new Promise(resolve => listener.close(resolve))
      for (const socket of sockets) socket.destroy()
      await closed
      server.close()
    },
  }
}

export async function startLink(
  path: string,
  relay: number,
  more: Partial<LinkOptions> = {},
  limits: AdmissionLimits = NO_LIMITS,
) {
  const link: RelayLink = new RelayLink({
    path,
    relay,
    lost: () => {},
    room: room => admission.setRoom(room),
    logLevel: () => {},
    forgotten: () => {},
    report: async () => ({}),
    ...more,
  })
  const admission = new RemoteAdmission(link, limits)
  await link.open()
  return { link, admission, placement: remotePlacementClient(link, admission) }
}
