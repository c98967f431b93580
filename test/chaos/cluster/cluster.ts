/**
 * The whole cluster: Redis, two gateways of two relays each (the first with TLS), two prefill and three
 * decode workers with the tiny model, a client and an observer, each on its own machine if possible.
 */
import { mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { tool } from '../../ops/tools.ts'
import { PROGRAM } from '../../worker/processes.ts'
import { Agent } from '../load/agent.ts'
import { type MadeArtifact, makeArtifact } from './artifacts.ts'
import { Certificates } from './certificates.ts'
import { Gateway } from './gateway.ts'
import {
  GATEWAYS,
  type GatewayName,
  type Machine,
  type Machines,
  PREFILLS,
  startMachines,
  type WorkerName,
  WORKERS,
} from './machines.ts'
import { Program } from './program.ts'
import { ADMIN_TOKEN, WORKER_FLAGS } from './settings.ts'
import { chaosFolder } from './state-disk.ts'

export interface Answer {
  readonly status: number
  // oxlint-disable-next-line typescript/no-explicit-any -- the caller knows the response
  readonly json: any
}

let clusters = 0

export class Cluster {
  readonly machines: Machines
  readonly artifacts: readonly MadeArtifact[]
  readonly store: Program
  readonly workers: ReadonlyMap<WorkerName, Program>
  readonly gateways: ReadonlyMap<GatewayName, Gateway>
  readonly #folder: string
  client!: Agent
  watch!: Agent

  private constructor(machines: Machines, folder: string, artifacts: readonly MadeArtifact[]) {
    this.machines = machines
    this.artifacts = artifacts
    this.#folder = folder
    const place = ['--bind', machines.address('store'), '--port', String(machines.port('store'))]
    const memoryOnly = ['--protected-mode', 'no', '--save', '', '--appendonly', 'no', '--dir', folder]
    this.store = new Program(machines, {
      name: 'store',
      command: [process.env['REDIS_SERVER'] ?? tool('store', 'redis-server'), ...place, ...memoryOnly],
      ready: 'Ready to accept connections',
    })
    this.workers = new Map(WORKERS.map(name => [name, this.#worker(name)]))
    const certificates = new Certificates(folder, machines.address('gw1'))
    const storeUrl = `redis://${machines.address('store')}:${machines.port('store')}`
    this.gateways = new Map(
      GATEWAYS.map(name => [
        name,
        new Gateway(machines, {
          name,
          folder,
          storeUrl,
          workerUrl: worker => this.workerUrl(worker),
          certificates: name === 'gw1' ? certificates : undefined,
        }),
      ]),
    )
  }

  static async start(seed: number, isLoopback: boolean): Promise<Cluster> {
    const folder = join(chaosFolder(), `c${clusters++}`)
    mkdirSync(folder, { recursive: true })
    const artifacts = [await makeArtifact(folder, 1), await makeArtifact(folder, 2)]
    const cluster = new Cluster(await startMachines(seed, isLoopback), folder, artifacts)
    try {
      await Promise.all([cluster.store, ...cluster.workers.values()].map(program => program.start()))
      await Promise.all([...cluster.gateways.values()].map(({ program }) => program.start()))
      const { caFile } = cluster.gateways.get('gw1')!.certificates!
      ;[cluster.client, cluster.watch] = await Promise.all([
        Agent.start(cluster.machines, 'client', caFile),
        Agent.start(cluster.machines, 'watch', caFile),
      ])
    } catch (error) {
      await cluster.close()
      throw error
    }
    return cluster
  }

  async close(): Promise<void> {
    await this.machines.close()
    for (const { disk } of this.gateways.values()) disk.remove()
    rmSync(this.#folder, { recursive: true, force: true })
  }

  workerUrl(name: Machine): string {
    return `http://${this.machines.address(name)}:${this.machines.port(name)}`
  }

  get gatewayUrls(): Record<string, string> {
    return Object.fromEntries([...this.gateways].map(([name, { url }]) => [name, url]))
  }

  /** A call of an operator, from the observer's machine. Rejects without a response. */
  async call(gateway: GatewayName, method: string, path: string, body?: object | Buffer): Promise<Answer> {
    const isBytes = Buffer.isBuffer(body)
    const type = isBytes ? 'application/octet-stream' : 'application/json'
    const { status, text } = await this.watch.ask({
      url: `${this.gateways.get(gateway)!.url}${path}`,
      method,
      headers: { authorization: `Bearer ${ADMIN_TOKEN}`, ...(body && { 'content-type': type }) },
      ...(isBytes ? { bytes: body.toString('base64') } : body && { body: JSON.stringify(body) }),
    })
    return { status, json: path === '/metrics' ? text : JSON.parse(text) }
  }

  #worker(name: WorkerName): Program {
    const role = PREFILLS.includes(name as never) ? 'prefill' : 'decode'
    const place = ['--host', this.machines.address(name), '--port', String(this.machines.port(name))]
    return new Program(this.machines, {
      name,
      command: [process.execPath, PROGRAM, 'worker', '--role', role, ...place, ...WORKER_FLAGS],
      ready: '"ready":true',
    })
  }
}
