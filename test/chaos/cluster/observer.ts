/** Reads what the checker judges at a quiet point: counts, settings that operators changed, memory. */
import { readFileSync } from 'node:fs'
import { readSamples } from '../../../src/cluster/metrics-text.ts'
import type { WorkerState } from '../../../src/worker/server/state.ts'
import type { AdminView } from '../check/admin-ledger.ts'
import type { Counts, ProcessMemory, Snapshot } from '../check/check-quiet.ts'
import { nowMs } from '../observation.ts'
import type { Cluster } from './cluster.ts'
import { GATEWAYS, type GatewayName, type WorkerName } from './machines.ts'

interface ShownWorker {
  readonly id: string
  readonly state: string
  readonly inflight: number
  readonly inflightElsewhere?: number
  readonly tokens: number
}

/** Workers that operators drain and undrain, and the one that they remove and add. */
export const DRAINED = ['d1', 'd2'] as const
export const REMOVED = 'd3'
const METRICS = {
  tickets: 'eldr_tickets',
  running: 'eldr_running_requests',
  queued: 'eldr_queue_length',
  ticketLeaks: 'eldr_ticket_leaks_total',
  doubleReleases: 'eldr_ticket_double_releases_total',
} as const

export async function snapshotOf(cluster: Cluster): Promise<Snapshot> {
  const gateways = GATEWAYS.map(async name => [name, await gatewayCounts(cluster, name)] as const)
  const workers = [...cluster.workers.keys()].map(
    async name => [name, await workerCounts(cluster, name)] as const,
  )
  const counts = Object.fromEntries(await Promise.all([...gateways, ...workers]))
  const bugs = [...cluster.gateways.values()].flatMap(({ bugs: found }) => found)
  return { atMs: nowMs(), counts, memory: memoryOf(cluster), bugs }
}

async function gatewayCounts(cluster: Cluster, name: GatewayName): Promise<Counts> {
  const [metrics, { json }] = await Promise.all([
    cluster.call(name, 'GET', '/metrics'),
    cluster.call(name, 'GET', '/eldr/workers'),
  ])
  const samples = readSamples(metrics.json as string, new Set(Object.values(METRICS)))
  const sumOf = (metric: string) =>
    samples.filter(sample => sample.name === metric).reduce((sum, { value }) => sum + value, 0)
  const { workers } = json as { workers: readonly ShownWorker[] }
  const sum = (of: (worker: ShownWorker) => number) =>
    workers.reduce((total, worker) => total + of(worker), 0)
  return {
    ...Object.fromEntries(Object.entries(METRICS).map(([count, metric]) => [count, sumOf(metric)])),
    inflight: sum(({ inflight }) => inflight),
    inflightElsewhere: sum(({ inflightElsewhere = 0 }) => inflightElsewhere),
    inflightTokens: sum(({ tokens }) => tokens),
  }
}

async function workerCounts(cluster: Cluster, name: WorkerName): Promise<Counts> {
  const { text } = await cluster.watch.ask({ url: `${cluster.workerUrl(name)}/eldr/state` })
  const { requests, leases, leased_blocks, stats } = JSON.parse(text) as WorkerState
  const { waiting, fetching, running, blocks, blocksFree, blocksKept } = stats
  return {
    requests,
    leases,
    leasedBlocks: leased_blocks,
    waiting,
    fetching,
    running,
    blocksKept,
    blocksUsed: blocks - blocksFree,
  }
}

/** Resident memory of every process. */
function memoryOf({ gateways, workers, store }: Cluster): ProcessMemory[] {
  const all = [...[...gateways.values()].flatMap(gateway => gateway.processes()), store, ...workers.values()]
  return all.flatMap(({ name, pid }) => {
    try {
      const kilobytes = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]
      return pid === undefined || kilobytes === undefined
        ? []
        : [{ name, pid, bytes: 1024 * Number(kilobytes) }]
    } catch {
      return [] // it has just exited, or there is no /proc
    }
  })
}

/** Settings that operators change, by gateway. */
export async function adminView(cluster: Cluster): Promise<AdminView> {
  const each = GATEWAYS.map(async name => {
    const [config, { json }] = await Promise.all([
      cluster.call(name, 'GET', '/eldr/config'),
      cluster.call(name, 'GET', '/eldr/workers'),
    ])
    const { policy, tau, artifact } = config.json.routing
    const { workers } = json as { workers: readonly ShownWorker[] }
    const stateOf = (id: string) => workers.find(worker => worker.id === id)?.state
    const drains = DRAINED.map(id => [`drain:${id}`, stateOf(id) === 'draining' ? 'drained' : 'not drained'])
    return [
      name,
      {
        policy: String(policy),
        tau: String(tau),
        artifact: String(artifact?.sha256 ?? 'none'),
        ...Object.fromEntries(drains),
        [`workers:${REMOVED}`]: [undefined, 'leaving'].includes(stateOf(REMOVED)) ? 'gone' : 'there',
      },
    ] as const
  })
  return Object.fromEntries(await Promise.all(each))
}

/** Why the cluster is not whole yet, or undefined: a worker that is down, a gateway that is alone. */
export async function whyNotWhole(cluster: Cluster): Promise<string | undefined> {
  const versions = new Set<number>()
  for (const name of GATEWAYS) {
    const { json: ready } = await cluster.call(name, 'GET', '/ready')
    const { workers } = (await cluster.call(name, 'GET', '/eldr/workers')).json as {
      workers: readonly ShownWorker[]
    }
    const down = workers.filter(
      ({ state }) => state === 'unhealthy' || state === 'unknown' || state === 'leaving',
    )
    if (ready.status !== 'ready') return `${name} is ${ready.status}`
    if (down.length > 0) return `${name}: ${down.map(({ id, state }) => `${id} is ${state}`).join(', ')}`
    const { store, replicas, waiting, behind = [], version } = ready.replicas
    if (store !== 'up' || replicas !== GATEWAYS.length || waiting > 0 || behind.length > 0)
      return `${name}: store ${store}, ${replicas} replicas, ${waiting} changes wait, behind: ${behind}`
    versions.add(version)
  }
  return versions.size > 1 ? `versions ${[...versions].join()}` : undefined
}

/** What a gateway starts with, of the settings that are not shared. */
export const CONFIGURED = { [`workers:${REMOVED}`]: 'there' }
