// The parts with which an owner decides, without real workers: `jsq` or `union` with 16 workers of each role.
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const WORKERS = 16
export const SHAPE = { layers: 48, experts: 128, topK: 8 }

export async function ownerParts(dist, policy) {
  const load = file => import(pathToFileURL(join(dist, file)).href)
  const { Registry } = await load('cluster/registry.js')
  const { LoadTracker } = await load('cluster/tickets.js')
  const { Admission } = await load('gateway/http/admission.js')
  const { Decisions } = await load('gateway/observe/decisions.js')
  const { Metrics } = await load('gateway/observe/metrics/metrics.js')
  const { localPlacementClient } = await load('gateway/routing/placement-client.js')
  const { RetryBudget } = await load('gateway/routing/retry-budget.js')
  const { Router } = await load('gateway/routing/router.js')
  const { createRoutingTable } = await load('gateway/routing/routing-table.js')
  const { createPrefillPolicy } = await load('policy/prefill-policy.js')
  const breaker = {
    consecutiveFailures: 5,
    windowMs: 1e4,
    windowRequests: 100,
    windowFailureShare: 1,
    openMs: 1e4,
  }
  const registry = new Registry(new LoadTracker(), breaker)
  for (const role of ['prefill', 'decode'])
    for (let n = 0; n < WORKERS; n++) {
      registry.add({ id: `${role}-${n}`, role, url: `http://${role}-${n}:8000` })
      registry.setHealth(`${role}-${n}`, true)
    }
  const { table } = createRoutingTable({ policy, tau: 0.1, workers: WORKERS, minCovered: 0.5, shape: SHAPE })
  const router = new Router({
    registry,
    decisions: new Decisions({ metrics: new Metrics(), kept: 256 }),
    prefillPolicy: createPrefillPolicy('prefix_hash'),
    table,
  })
  const budget = new RetryBudget(0.2)
  const admission = new Admission({ maxConcurrentRequests: 4096, queueSize: 1024, queueTimeoutMs: 1e4 })
  return {
    registry,
    router,
    budget,
    admission,
    placement: localPlacementClient({ registry, router, budget }),
  }
}
