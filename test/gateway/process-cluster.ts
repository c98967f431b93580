/**
 * A gateway of several processes in front of fake workers, as `eldr serve --processes` starts it, and its
 * pids.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type FakeWorker, type FakeWorkerOptions, startFakeWorker } from '../fake-worker/index.ts'
import { polled, type RunningProcess, startGatewayProcess } from '../worker/processes.ts'
import { type ClusterOptions, SHAPE } from './cluster.ts'
import { gate } from './watching.ts'

export interface ProcessCluster {
  readonly url: string
  readonly process: RunningProcess
  /** The configuration file. */
  readonly file: string
  /** Writes the configuration file again, with these parts in place of those of the same name. */
  configure(parts: Record<string, unknown>): void
  readonly prefills: readonly FakeWorker[]
  readonly decodes: readonly FakeWorker[]
  post(path: string, body: unknown, init?: RequestInit): Promise<Response>
  /** A GET to the admin API. */
  get<T>(path: string): Promise<T>
  /** The pid of the process that now has this name: owner, relay-1, … */
  pidOf(name: string): number
  /** Resolves when the process of this name has another pid. */
  replaced(name: string, pid: number): Promise<void>
  /** Decode requests that start from now on stop after two tokens. */
  holdStreams(): HeldStreams
  /** In-flight requests on workers, as the owner counts them. */
  inflight(): Promise<number>
  idle(): Promise<void>
  stop(): Promise<void>
}

export interface HeldStreams {
  /** Requests that start after this are not held; those that are held stay so. */
  holdNoMore(): void
  /** Lets the held streams continue. */
  release(): void
}

export interface ProcessOptions extends ClusterOptions {
  readonly processes?: number
  /** How to ask whether workers are ready, where a plain GET does not do. */
  readonly ready?: (url: string) => Promise<boolean>
}

export async function startProcessCluster(options: ProcessOptions = {}): Promise<ProcessCluster> {
  const many = (count: number, more: FakeWorkerOptions) =>
    Promise.all(Array.from({ length: count }, () => startFakeWorker(more)))
  const prefills = await many(options.prefill ?? 2, {
    role: 'prefill',
    counts: SHAPE,
    ...options.prefillOptions,
  })
  const decodes = await many(options.decode ?? 2, { role: 'decode', prefills, ...options.decodeOptions })
  const { config = {}, processes = 2 } = options
  const folder = mkdtempSync(join(tmpdir(), 'eldr-test-'))
  const file = join(folder, 'eldr.yaml')
  const settings = {
    ...config,
    server: { port: 0, processes, ...config.server },
    workers: {
      prefill: prefills.map(({ url }) => ({ url })),
      decode: decodes.map(({ url }) => ({ url })),
      ...config.workers,
    },
    retries: { backoffMs: 1, ...config.retries },
  }
  writeFileSync(file, JSON.stringify(settings))
  const gateway = await startGatewayProcess(['--config', file])
  const { url } = gateway
  const token = config.server?.['adminToken'] as string | undefined
  const headers: Record<string, string> = { connection: 'close' }
  if (token !== undefined) headers['authorization'] = `Bearer ${token}`
  const get = async <T>(path: string) => (await (await fetch(`${url}${path}`, { headers })).json()) as T
  const inflight = async () => {
    const { workers } = await get<{ workers: { inflight: number; tokens: number }[] }>('/eldr/workers')
    return workers.reduce((sum, worker) => sum + worker.inflight, 0)
  }
  const ready = async () => {
    const there = await get<{ prefill: number; decode: number }>('/ready')
    return there.prefill >= prefills.length && there.decode >= decodes.length
  }
  await polled(() => (options.ready === undefined ? ready() : options.ready(url)), Boolean, 'workers')
  const pidOf = (name: string) => {
    const lines = gateway
      .said()
      .split('\n')
      .filter(line => line.includes('"process is ready"') && line.includes(`"process":"${name}"`))
    return (JSON.parse(lines.at(-1)!) as { pid: number }).pid
  }
  const pause = () => new Promise(resolve => setTimeout(resolve, 5))
  return {
    url,
    process: gateway,
    file,
    configure: parts => writeFileSync(file, JSON.stringify({ ...settings, ...parts })),
    prefills,
    decodes,
    post: (path, body, init) =>
      fetch(`${url}${path}`, {
        method: 'POST',
        body: typeof body === 'string' ? body : JSON.stringify(body),
        ...init,
        headers: { 'content-type': 'application/json', ...init?.headers },
      }),
    get,
    pidOf,
    replaced: async (name, pid) =>
      void (await polled(
        async () => (await pause(), pidOf(name)),
        now => now !== pid,
        `a new ${name}`,
      )),
    holdStreams() {
      const { opened, open } = gate()
      for (const decode of decodes) decode.fail({ kind: 'hang', after: 'tokens', tokens: 2, until: opened })
      const holdNoMore = () => decodes.forEach(decode => decode.clearFaults())
      return {
        holdNoMore,
        release() {
          holdNoMore()
          open()
        },
      }
    },
    inflight,
    async idle() {
      const left = async () =>
        (await inflight()) + [...prefills, ...decodes].reduce((sum, { counters }) => sum + counters.active, 0)
      await polled(left, count => count === 0, 'no request in flight')
    },
    async stop() {
      await gateway.stop()
      await Promise.all([...prefills, ...decodes].map(worker => worker.close()))
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

export function runs(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

export async function ended(pids: readonly number[]): Promise<void> {
  const left = async () => (await new Promise(resolve => setTimeout(resolve, 5)), pids.filter(runs))
  await polled(left, pids => pids.length === 0, 'processes to end')
}
