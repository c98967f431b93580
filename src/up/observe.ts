/** Observes a running cluster: the state of its workers, and the gateway's view of them and its policy. */
import { Agent, request } from 'undici'
import type { WorkerState } from '../worker/server/state.ts'
import type { EmbeddedCluster, Role } from './cluster.ts'

export interface Observation {
  readonly atMs: number
  /** Undefined while the gateway does not respond. */
  readonly policy: string | undefined
  readonly workers: readonly ObservedWorker[]
}

export interface ObservedWorker {
  readonly name: string
  readonly role: Role
  readonly pid: number | undefined
  readonly restarts: number
  /** State in the gateway: ready, unhealthy, open …; down while there is no process. */
  readonly state: string
  /** Requests that the gateway has sent there and that still run. */
  readonly inflight: number
  /** Undefined while the worker does not respond. */
  readonly own: WorkerState | undefined
}

interface ListedWorker {
  readonly url: string
  readonly state: string
  readonly inflight: number
}

const TIMEOUT_MS = 2_000

export class Observer {
  readonly #cluster: EmbeddedCluster
  readonly #agent = new Agent({ keepAliveTimeout: 10_000 })

  constructor(cluster: EmbeddedCluster) {
    this.#cluster = cluster
  }

  async look(): Promise<Observation> {
    const { workers, gateway } = this.#cluster
    const [config, listed, ...states] = await Promise.all([
      this.#get<{ routing: { policy: string } }>(`${gateway.url}/eldr/config`),
      this.#get<{ workers: readonly ListedWorker[] }>(`${gateway.url}/eldr/workers`),
      ...workers.map(({ process }) =>
        process.isUp ? this.#get<WorkerState>(`${process.url}/eldr/state`) : undefined,
      ),
    ])
    return {
      atMs: performance.now(),
      policy: config?.routing.policy,
      workers: workers.map(({ role, process }, at) => {
        const seen = listed?.workers.find(({ url }) => url === process.url)
        const { name, pid, restarts, isUp } = process
        return {
          name,
          role,
          pid,
          restarts,
          state: isUp ? (seen?.state ?? 'unknown') : 'down',
          inflight: seen?.inflight ?? 0,
          own: states[at],
        }
      }),
    }
  }

  close(): Promise<void> {
    return this.#agent.destroy()
  }

  /** Undefined without a response, as while a process starts or stops. */
  async #get<T>(url: string): Promise<T | undefined> {
    try {
      const limits = { headersTimeout: TIMEOUT_MS, bodyTimeout: TIMEOUT_MS, dispatcher: this.#agent }
      const { statusCode, body } = await request(url, limits)
      const text = await body.text()
      return statusCode === 200 ? (JSON.parse(text) as T) : undefined
    } catch {
      return undefined
    }
  }
}
