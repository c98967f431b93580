/**
 * Two gateways, a store, two prefill and two decode workers, a client and an observer, each on its own
 * machine. All run the real programs. The second gateway has several processes. The observer's paths never
 * have faults.
 */
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { readSamples } from '../../../src/cluster/metrics-text.ts'
import type { WorkerState } from '../../../src/worker/server/state.ts'
import { PROGRAM } from '../../worker/processes.ts'
import { until } from './until.ts'
import { tool } from '../tools.ts'
import { Agent } from './agent.ts'
import { Network } from './network.ts'

export const GATEWAYS = ['gw1', 'gw2'] as const
export const WORKERS = ['p1', 'p2', 'd1', 'd2'] as const
export const MACHINES = [...GATEWAYS, 'store', ...WORKERS, 'client', 'watch'] as const
export type Machine = (typeof MACHINES)[number]
export type GatewayName = (typeof GATEWAYS)[number]
export type WorkerName = (typeof WORKERS)[number]
/** All machines except the observer's. */
export const SUBJECTS = MACHINES.filter(name => name !== 'watch')

export const LEASE_MS = 1_500
/** Lease of the blocks at a prefill worker. */
const KV_LEASE_MS = 3_000
const START_MS = 60_000
const TOKEN = 'netns-admin'
/** Short, so that faults show soon, but far above what a busy machine or the delays of these tests need. */
const SETTINGS = {
  timeouts: { prefillMs: 4_000, firstTokenMs: 3_000, betweenTokensMs: 1_500, requestMs: 12_000 },
  lease: { durationMs: KV_LEASE_MS },
  health: { intervalMs: 400, timeoutMs: 1_200 },
  breaker: { consecutiveFailures: 3, openMs: 1_000 },
  server: { clientStallMs: 1_000 },
}

export interface ClusterOptions {
  readonly policy: 'jsq' | 'union'
  /** Seed of the switch's losses and jitter. */
  readonly seed?: string
  /** Replica settings (default: short leases). */
  readonly replicas?: { readonly leaseMs?: number; readonly timeoutMs?: number }
  /** Environment of processes by machine, such as a shifted clock. */
  readonly env?: Partial<Record<Machine, Record<string, string>>>
}

// oxlint-disable-next-line typescript/no-explicit-any -- tests know the response
type Json = any

const roleOf = (name: WorkerName) => (name.startsWith('p') ? 'prefill' : 'decode')

export class Cluster {
  readonly network: Network<Machine>
  readonly #options: ClusterOptions
  readonly #folder = mkdtempSync(join(tmpdir(), 'eldr-netns-'))
  readonly #said = new Map<Machine, string>()
  readonly #children = new Map<Machine, ChildProcess>()
  client!: Agent
  watch!: Agent

  private constructor(network: Network<Machine>, options: ClusterOptions) {
    this.network = network
    this.#options = options
  }

  static async start(options: ClusterOptions): Promise<Cluster> {
    const cluster = new Cluster(await Network.start(MACHINES, options.seed), options)
    try {
      await Promise.all([cluster.startStore(), ...WORKERS.map(name => cluster.#startWorker(name))])
      const agents = Promise.all([
        Agent.start(cluster.network, 'client'),
        Agent.start(cluster.network, 'watch'),
      ])
      await Promise.all(GATEWAYS.map(name => cluster.startGateway(name)))
      ;[cluster.client, cluster.watch] = await agents
      await cluster.together()
    } catch (error) {
      await cluster.close()
      throw error
    }
    return cluster
  }

  async close(): Promise<void> {
    await this.network.close()
    rmSync(this.#folder, { recursive: true, force: true })
  }

  url(name: GatewayName | WorkerName): string {
    return `http://${this.network.address(name)}:8000`
  }

  get storeUrl(): string {
    return `redis://${this.network.address('store')}:6379`
  }

  /** Output of a machine's program so far. */
  said(name: Machine): string {
    return this.#said.get(name) ?? ''
  }

  async startStore(): Promise<void> {
    const program = process.env['REDIS_SERVER'] ?? tool('store', 'redis-server')
    await this.#start(
      'store',
      [
        program,
        '--bind',
        this.network.address('store'),
        '--protected-mode',
        'no',
        '--save',
        '',
        '--appendonly',
        'no',
        '--dir',
        this.#folder,
      ],
      'Ready to accept connections',
    )
  }

  /** SIGKILL. Resolves when it has exited, so that its port is free. */
  async killStore(): Promise<void> {
    const exited = once(this.#children.get('store')!, 'exit')
    this.network.kill('store')
    await exited
  }

  async startGateway(name: GatewayName): Promise<void> {
    const file = join(this.#folder, `${name}.json`)
    writeFileSync(
      file,
      JSON.stringify({
        ...SETTINGS,
        replicas: this.#options.replicas ?? { leaseMs: LEASE_MS, timeoutMs: 1_000, retryMs: 50 },
      }),
    )
    const workers = WORKERS.flatMap(worker => [`--${roleOf(worker)}`, `${worker}=${this.url(worker)}`])
    const flags = [
      '--config',
      file,
      '--host',
      '0.0.0.0',
      '--port',
      '8000',
      '--policy',
      this.#options.policy,
      '--replica-store',
      this.storeUrl,
      '--replica-id',
      name,
      '--processes',
      name === 'gw2' ? '2' : '1',
      ...workers,
    ]
    await this.#start(name, [process.execPath, PROGRAM, 'serve', ...flags], 'listening on', {
      ELDR_ADMIN_TOKEN: TOKEN,
    })
  }

  async #startWorker(name: WorkerName): Promise<void> {
    await this.#start(
      name,
      [
        process.execPath,
        PROGRAM,
        'worker',
        '--role',
        roleOf(name),
        '--host',
        this.network.address(name),
        '--port',
        '8000',
        '--json-ready',
        '--log-level',
        'warn',
        '--lease-ms',
        String(KV_LEASE_MS),
        '--client-stall-ms',
        '2000',
      ],
      '"ready":true',
    )
  }

  /** Resolves when its output shows that it is ready. */
  async #start(
    name: Machine,
    command: readonly string[],
    stands: string,
    env: Record<string, string> = {},
  ): Promise<void> {
    const child: ChildProcess = this.network.spawn(name, command, { ...env, ...this.#options.env?.[name] })
    this.#children.set(name, child)
    await new Promise<void>((resolve, reject) => {
      for (const input of [child.stdout!, child.stderr!])
        createInterface({ input }).on('line', line => {
          this.#said.set(name, `${this.said(name)}${line}\n`)
          if (line.includes(stands)) resolve()
        })
      setTimeout(
        () => reject(new Error(`${name} is not ready after ${START_MS} ms: ${this.said(name)}`)),
        START_MS,
      ).unref()
      child.once('exit', code => reject(new Error(`${name} exited with ${String(code)}: ${this.said(name)}`)))
    })
  }

  /** Fetches JSON from a gateway or a worker, from the observer's machine. */
  async get(name: GatewayName | WorkerName, path: string): Promise<Json> {
    return JSON.parse(
      (await this.watch.ask(`${this.url(name)}${path}`, { headers: { authorization: `Bearer ${TOKEN}` } }))
        .text,
    )
  }

  async change(name: GatewayName, method: string, path: string, body: object): Promise<number> {
    const headers = { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' }
    return (await this.watch.ask(`${this.url(name)}${path}`, { method, headers, body: JSON.stringify(body) }))
      .status
  }

  /** Sum over all series with these labels. */
  async metric(name: GatewayName, metric: string, labels: Record<string, string> = {}): Promise<number> {
    const { text } = await this.watch.ask(`${this.url(name)}/metrics`)
    const samples = readSamples(text, new Set([metric])).filter(sample =>
      Object.entries(labels).every(([key, value]) => sample.labels[key] === value),
    )
    return samples.reduce((sum, { value }) => sum + value, 0)
  }

  state(name: WorkerName): Promise<WorkerState> {
    return this.get(name, '/eldr/state') as Promise<WorkerState>
  }

  /** By worker: a gateway's own requests, and those it knows of from the other. */
  async views(
    name: GatewayName,
  ): Promise<Record<string, { state: string; inflight: number; inflightElsewhere: number }>> {
    const { workers } = await this.get(name, '/eldr/workers')
    return Object.fromEntries((workers as { id: string }[]).map(worker => [worker.id, worker])) as never
  }

  /** Waits until both gateways are ready, have all workers, and see each other. */
  together(): Promise<number> {
    return until('both gateways to be whole', async () => {
      const all = await Promise.all(GATEWAYS.map(name => this.get(name, '/ready')))
      return all.every(
        ({ status, prefill, decode, replicas }) =>
          status === 'ready' &&
          prefill === 2 &&
          decode === 2 &&
          replicas.store === 'up' &&
          replicas.replicas === 2,
      )
    })
  }

  /** Values that are not zero, as 'machine name: value'; empty once everything is released. */
  async leftovers(): Promise<string[]> {
    const ofGateways = GATEWAYS.map(async name => {
      const views = Object.values(await this.views(name))
      const [tickets, running] = await Promise.all([
        this.metric(name, 'eldr_tickets'),
        this.metric(name, 'eldr_running_requests'),
      ])
      const own = views.reduce((sum, { inflight }) => sum + inflight, 0)
      const elsewhere = views.reduce((sum, { inflightElsewhere }) => sum + inflightElsewhere, 0)
      return { name, tickets, running, own, elsewhere }
    })
    const ofWorkers = WORKERS.map(async name => {
      const { requests, leases, leased_blocks, stats } = await this.state(name)
      return {
        name,
        requests,
        leases,
        leased_blocks,
        running: stats.running,
        waiting: stats.waiting,
        fetching: stats.fetching,
        blocksKept: stats.blocksKept,
      }
    })
    const all = await Promise.all([...ofGateways, ...ofWorkers])
    return all.flatMap(({ name, ...counts }) =>
      Object.entries(counts).flatMap(([what, value]) => (value === 0 ? [] : [`${name} ${what}: ${value}`])),
    )
  }

  /** Waits until no request is left. */
  async nothingLeft(): Promise<number> {
    let left: string[] = []
    return until(
      'nothing to be left',
      async () => (left = await this.leftovers()).length === 0,
      20_000,
    ).catch((error: Error) => {
      throw new Error(`${error.message}: ${left.join(', ')}`)
    })
  }

  /** Waits until no request is left and both gateways are ready. */
  async quiet(): Promise<void> {
    await this.together()
    await this.nothingLeft()
  }

  /**
   * Waits until no worker has a KV connection. One whose peer was cut off is closed after 30 s of idleness.
   */
  noKvConnections(): Promise<number> {
    return until('connections for KV blocks to end', async () => {
      const states = await Promise.all(WORKERS.map(name => this.state(name)))
      return states.every(({ connections }) => connections.kv === 0)
    })
  }
}
