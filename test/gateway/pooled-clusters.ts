/**
 * Clusters shared by tests, since a gateway of several processes takes a second to start. Each test gets an
 * idle one and counts from its current values.
 */
import type { FakeWorker } from '../fake-worker/index.ts'
import { type Cluster, type ClusterOptions, startCluster } from './cluster.ts'
import { eventually, metricIn, stopCluster } from './watching.ts'

export const SEVERAL_PROCESSES = Number(process.env['ELDR_TEST_PROCESSES'] ?? 1) > 1

export interface Borrowed {
  readonly cluster: Cluster
  /** Requests of a leg that this worker got since the cluster was borrowed. */
  tries(worker: FakeWorker, leg: 'prefill' | 'decode'): number
  /** Increase of a metric. */
  counted(name: string, labels?: Readonly<Record<string, string>>): Promise<number>
}

export class PooledClusters {
  readonly #free = new Map<number, Cluster[]>()
  readonly #all: Promise<Cluster>[] = []

  /** Concurrent tests get different clusters. */
  async borrow(
    workers: number,
    options: ClusterOptions,
    test: (borrowed: Borrowed) => Promise<void>,
  ): Promise<void> {
    const free = this.#free.get(workers) ?? []
    this.#free.set(workers, free)
    const cluster = free.pop() ?? (await this.#start(workers, options))
    const all = [...cluster.prefills, ...cluster.decodes]
    const before = new Map(all.map(worker => [worker, { ...worker.counters }]))
    const text = await metricsOf(cluster)
    await test({
      cluster,
      tries: (worker, leg) => worker.counters[leg] - before.get(worker)![leg],
      counted: async (name, labels) =>
        metricIn(await metricsOf(cluster), name, labels) - metricIn(text, name, labels),
    })
    // A cluster whose test failed is not reused: it may not be idle.
    for (const worker of all) {
      worker.clearFaults()
      await worker.accept()
    }
    await cluster.idle()
    const ready = async () =>
      (await (await fetch(`${cluster.url}/ready`)).json()) as { prefill: number; decode: number }
    await eventually(
      async () => Object.values(pick(await ready())).every(count => count === workers),
      'healthy workers',
    )
    free.push(cluster)
  }

  async close(): Promise<void> {
    for (const cluster of this.#all) await stopCluster(await cluster)
  }

  #start(workers: number, options: ClusterOptions): Promise<Cluster> {
    // What a test does to workers must not follow them into the next: no breaker, retries for all, and no
    // connection that was used before,
    // on which a reset is no failure of the worker.
    const config = {
      ...options.config,
      breaker: { consecutiveFailures: 1_000, windowRequests: 1_000_000 },
      retries: { budgetShare: 1 },
      health: { intervalMs: 1_000 },
      workers: { idleConnectionMs: 1 },
    }
    const cluster = startCluster({ ...options, prefill: workers, decode: workers, config })
    this.#all.push(cluster)
    return cluster
  }
}

const pick = ({ prefill, decode }: { prefill: number; decode: number }) => ({ prefill, decode })
const metricsOf = async ({ url }: Cluster) => (await fetch(`${url}/metrics`)).text()
