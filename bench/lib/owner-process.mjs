// An owner without workers, as a process of its own, for the time that a question to it takes: decides by `jsq` or `union` among 16.
//
//   node bench/lib/owner-process.mjs DIST SOCKET POLICY
import { createServer } from 'node:net'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const [dist, path, policy] = process.argv.slice(2)
const load = file => import(pathToFileURL(join(dist, file)).href)
const WORKERS = 16
const SHAPE = { layers: 48, experts: 128, topK: 8 }

const { Registry } = await load('cluster/registry.js')
const { TicketDesk } = await load('cluster/tickets.js')
const { Admission } = await load('gateway/admission.js')
const { createLog } = await load('gateway/log.js')
const { Metrics } = await load('gateway/metrics.js')
const { localPlacing } = await load('gateway/placing.js')
const { OwnerDesk } = await load('gateway/processes/owner-desk.js')
const { RetryBudget } = await load('gateway/retry-budget.js')
const { Router } = await load('gateway/routing/router.js')
const { createRoutingTable } = await load('gateway/routing/routing-table.js')
const { createPrefillPolicy } = await load('policy/prefill-policy.js')

const registry = new Registry(new TicketDesk(), {
  consecutiveFailures: 5,
  windowMs: 1e4,
  windowRequests: 100,
  windowFailureShare: 1,
  openMs: 1e4,
})
for (const role of ['prefill', 'decode'])
  for (let n = 0; n < WORKERS; n++) {
    registry.add({ id: `${role}-${n}`, role, url: `http://${role}-${n}:8000` })
    registry.setHealth(`${role}-${n}`, true)
  }
const table = createRoutingTable({ policy, tau: 0.1, workers: WORKERS, minCovered: 0.5, shape: SHAPE })
const router = new Router({
  registry,
  metrics: new Metrics(),
  prefillPolicy: createPrefillPolicy('prefix_hash'),
  table,
  decisionsKept: 256,
})
const budget = new RetryBudget(0.2)
const nothing = () => {}
const desk = new OwnerDesk(
  {
    placing: localPlacing({ registry, router, budget }),
    registry,
    router,
    budget,
    admission: new Admission({ maxConcurrentRequests: 4096, queueSize: 1024, queueTimeoutMs: 1e4 }),
    health: { passiveFailure: nothing },
    restarts: { sawEngineId: nothing },
    pace: { firstByte: nothing, stream: nothing, onWorker: nothing },
    log: createLog({ logLevel: 'silent', logFormat: 'json' }),
    logLevel: () => 'silent',
  },
  { relays: [], roles: [], mostMs: 1 },
)
createServer(socket => desk.connected(socket)).listen(path, () => process.stdout.write('ready\n'))
process.stdin.on('close', () => process.exit()).resume()
