/**
 * The embedded cluster: prefill workers, decode workers and the gateway, each in its own process on this
 * machine. Workers start together, the gateway when their URLs are known. A process that exits is restarted;
 * `stop` ends all at any time.
 */
import { EldrError } from '../errors.ts'
import { fetchText } from '../load/endpoint.ts'
import { type AttachedCluster, attachCluster } from '../load/gateway-cluster.ts'
import type { ClusterEvents } from './cluster-events.ts'
import { checkPort } from './free-port.ts'
import { Supervised } from './supervised.ts'

/**
 * `replay`: experts from a trace. `tiny`: a model; with `recentHalfLife`, hand-offs have recent counts with
 * that half-life.
 */
export type ClusterBackEnd =
  | { readonly kind: 'replay'; readonly trace: string }
  | {
      readonly kind: 'tiny'
      readonly model: string | undefined
      readonly pace: string
      readonly recentHalfLife: number | undefined
    }

export interface ClusterSettings {
  readonly prefill: number
  readonly decode: number
  readonly host: string
  /** Port of the gateway; 0: any free port. Workers use any free port. */
  readonly port: number
  /** Back end of the workers. */
  readonly backEnd: ClusterBackEnd
  readonly profile: string
  readonly speed: number
  readonly policy: string
  /** Policies that decide beside it. */
  readonly shadow?: readonly string[]
  /** Undefined: only policies without an artifact. */
  readonly artifact: string | undefined
}

export type Role = 'prefill' | 'decode'

export interface ClusterWorker {
  readonly role: Role
  readonly process: Supervised
}

/** Workers hold few long-lived objects: small semi-spaces save memory for a small cost per step. */
const WORKER_FLAGS = ['--max-semi-space-size=1', '--max-old-space-size=256']
/** Real keys and values need memory: this is 100 MB for tiny6. */
const TINY_BLOCKS = '1024'
/** A process is killed this long after SIGTERM. */
const STOP_MS = 3_000
const GRACE_MS = 500
const READY_MS = 20_000
const POLL_MS = 25

export class EmbeddedCluster {
  readonly settings: ClusterSettings
  readonly workers: readonly ClusterWorker[]
  readonly gateway: Supervised
  #stopped: Promise<void> | undefined

  constructor(settings: ClusterSettings, events: ClusterEvents) {
    this.settings = settings
    const worker = (role: Role, index: number): ClusterWorker => ({
      role,
      process: new Supervised(workerSpec(settings, role, `${role}-${index}`), events),
    })
    const many = (role: Role) => Array.from({ length: settings[role] }, (_, index) => worker(role, index))
    this.workers = [...many('prefill'), ...many('decode')]
    this.gateway = new Supervised(
      {
        name: 'gateway',
        nodeFlags: [],
        readyIn: line => /listening on (http:\/\/[^\s"]+)/.exec(line)?.[1],
        argsFor: url => this.#gatewayArgs(url),
      },
      events,
    )
  }

  get url(): string {
    return this.gateway.url
  }

  /** Process ids of running processes, by name. */
  get pids(): Readonly<Record<string, number | undefined>> {
    return Object.fromEntries(
      [this.gateway, ...this.workers.map(({ process }) => process)].map(({ name, pid }) => [name, pid]),
    )
  }

  /** Resolves when all processes are ready. On a failure all started processes are stopped. */
  async start(): Promise<void> {
    try {
      await checkPort(this.settings.host, this.settings.port)
      await Promise.all(this.workers.map(({ process }) => process.start()))
      await this.gateway.start()
      await this.#whenReady()
    } catch (error) {
      await this.stop()
      throw error
    }
  }

  stop(): Promise<void> {
    // The gateway stops first: otherwise it would report stopping workers as failures.
    this.#stopped ??= this.gateway.stop(STOP_MS).then(async () => {
      await Promise.all(this.workers.map(({ process }) => process.stop(STOP_MS)))
    })
    return this.#stopped
  }

  /** Access for the load client, like that to a running gateway, but with `stop`. */
  async attach(): Promise<AttachedCluster> {
    const attached = await attachCluster({ url: this.url })
    return { ...attached, clearPrefixCaches: () => this.#clear(), stop: () => this.stop() }
  }

  /** Caches can be cleared only when idle: the last hand-offs of a run end shortly after its last token. */
  async #clear(): Promise<boolean> {
    return this.#within(READY_MS, 'cleared prefix caches', async () => {
      const cleared = this.workers.map(({ process }) =>
        fetchText({}, 'POST', `${process.url}/reset_prefix_cache`),
      )
      return (await Promise.all(cleared)).every(({ status }) => status === 200)
    })
  }

  async #whenReady(): Promise<void> {
    const { prefill, decode } = this.settings
    await this.#within(READY_MS, 'all workers ready', async () => {
      const { text } = await fetchText({}, 'GET', `${this.url}/ready`)
      const ready = JSON.parse(text) as { prefill?: number; decode?: number }
      return ready.prefill === prefill && ready.decode === decode
    })
  }

  async #within(ms: number, expected: string, isDone: () => Promise<boolean>): Promise<true> {
    const untilMs = performance.now() + ms
    while (!(await isDone())) {
      if (this.#stopped !== undefined)
        throw new EldrError('ELDR_CLUSTER_FAILED', { found: 'the cluster was stopped', expected })
      if (performance.now() > untilMs)
        throw new EldrError('ELDR_CLUSTER_FAILED', { found: `a timeout after ${ms / 1000} s`, expected })
      await new Promise(resolve => setTimeout(resolve, POLL_MS))
    }
    return true
  }

  #gatewayArgs(url: string | undefined): string[] {
    const { host, port, policy, shadow = [], artifact, profile } = this.settings
    const addresses = this.workers.flatMap(({ role, process }) => [
      `--${role}`,
      `${process.name}=${process.url}`,
    ])
    return [
      'serve',
      '--host',
      host,
      '--port',
      url === undefined ? String(port) : new URL(url).port,
      ...addresses,
      '--policy',
      policy,
      ...(shadow.length === 0 ? [] : ['--shadow', ...shadow]),
      '--profile',
      profile,
      ...(artifact === undefined ? [] : ['--artifact', artifact]),
      // A worker that is started again is back within a second or two.
      '--health-check-interval-secs',
      '1',
      '--cb-timeout-duration-secs',
      '1',
      '--shutdown-grace-period-secs',
      String(GRACE_MS / 1000),
      '--log-level',
      'info',
      '--json-log',
    ]
  }
}

function backEndArgs({ backEnd, profile, speed }: ClusterSettings, role: Role): string[] {
  const scaled = ['--speed', String(speed)]
  if (backEnd.kind === 'replay') return ['--trace', backEnd.trace, '--profile', profile, ...scaled]
  const { model, pace, recentHalfLife } = backEnd
  const recent =
    role === 'prefill' && recentHalfLife !== undefined ? ['--recent-half-life', String(recentHalfLife)] : []
  return [
    '--backend',
    'tiny',
    ...(model === undefined ? [] : ['--model', model]),
    '--pace',
    pace,
    ...(pace === 'real' ? [] : scaled),
    '--blocks',
    TINY_BLOCKS,
    ...recent,
  ]
}

function workerSpec(settings: ClusterSettings, role: Role, name: string) {
  return {
    name,
    nodeFlags: WORKER_FLAGS,
    readyIn: (line: string) =>
      line.startsWith('{"ready":true') ? (JSON.parse(line) as { url: string }).url : undefined,
    argsFor: (url: string | undefined) => [
      'worker',
      '--role',
      role,
      '--host',
      '127.0.0.1',
      '--port',
      url === undefined ? '0' : new URL(url).port,
      ...backEndArgs(settings, role),
      '--grace-ms',
      String(GRACE_MS),
      '--log-level',
      'warn',
      '--json-ready',
    ],
  }
}
