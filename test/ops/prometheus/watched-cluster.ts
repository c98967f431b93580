/**
 * A cluster of processes that Prometheus watches: two prefill workers, one of which hands off no counts as a
 * vLLM without the plugin does, three decode workers, and a gateway that lets in few requests, so that some
 * can be turned away. Another gateway is its replica.
 */
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import {
  polled,
  PROGRAM,
  type RunningProcess,
  startGatewayProcess,
  startWorkerProcess,
  type WorkerProcess,
} from '../../worker/processes.ts'
import { startStore } from '../replicas/store.ts'
import type { ScrapeTarget } from './prometheus-process.ts'

const CALIBRATION = join(import.meta.dirname, '../../../data/lab16-task.calibration.safetensors')
export const ROOM = 12
const QUEUE = 4

export interface ListedWorker {
  readonly id: string
  readonly state: string
  readonly inflight: number
  readonly tokens: number
}

export interface WatchedCluster {
  readonly gateway: RunningProcess
  /** decode-0, … */
  readonly decodes: readonly WorkerProcess[]
  readonly targets: readonly ScrapeTarget[]
  workers(): Promise<readonly ListedWorker[]>
  stop(): Promise<void>
}

export async function startWatchedCluster(folder: string): Promise<WatchedCluster> {
  const artifact = join(folder, 'artifact.safetensors')
  const fit = promisify(execFile)(process.execPath, [
    PROGRAM,
    'fit',
    CALIBRATION,
    '--workers',
    '3',
    '--out',
    artifact,
    '--layers',
    '0-3',
    '--transform',
    'count',
  ])
  const worker = (role: string) => startWorkerProcess('--role', role, '--speed', '2')
  const [prefill, ...decodes] = await Promise.all([
    worker('prefill'),
    worker('decode'),
    worker('decode'),
    worker('decode'),
  ])
  const bare = await withoutCounts(prefill.url)
  await fit
  const urls: Record<string, string> = { 'prefill-0': prefill.url, 'prefill-1': bare.url }
  decodes.forEach(({ url }, at) => (urls[`decode-${at}`] = url))
  const legOf = (name: string) => name.split('-', 1)[0]!
  const flags = Object.entries(urls).flatMap(([name, url]) => [`--${legOf(name)}`, `${name}=${url}`])
  const limits = [
    '--max-concurrent-requests',
    String(ROOM),
    '--queue-size',
    String(QUEUE),
    '--health-check-interval-secs',
    '1',
  ]
  const store = await startStore()
  const shared = [
    ...flags,
    ...limits,
    '--artifact',
    artifact,
    '--policy',
    'band',
    '--replica-store',
    store.url,
  ]
  const gateway = await startGatewayProcess([...shared, '--log-level', 'info'])
  const replica = await startGatewayProcess(shared)
  const workers = async () =>
    ((await (await fetch(`${gateway.url}/eldr/workers`)).json()) as { workers: ListedWorker[] }).workers
  await polled(
    workers,
    all => all.length === 5 && all.every(({ state }) => state === 'ready'),
    'all workers ready',
  )
  return {
    gateway,
    decodes,
    targets: [
      { job: 'eldr', url: gateway.url },
      ...Object.entries(urls).map(([name, url]) => ({
        job: 'eldr-worker',
        url,
        labels: { worker: name, leg: legOf(name) },
      })),
    ],
    workers,
    async stop() {
      await Promise.all([gateway.stop(), replica.stop()])
      await store.close()
      bare.server.closeAllConnections()
      bare.server.close()
      await Promise.all(
        [prefill, ...decodes].map(
          ({ child, kill }) => (child.exitCode ?? child.signalCode) === null && kill(),
        ),
      )
    },
  }
}

/** Passes everything on to a prefill worker, and takes the counts out of what it hands off. */
async function withoutCounts(target: string): Promise<{ readonly server: Server; readonly url: string }> {
  const server = createServer(async (request, response) => {
    try {
      const body = request.method === 'POST' ? Buffer.concat(await request.toArray()) : undefined
      const answer = await fetch(`${target}${request.url}`, {
        method: request.method ?? 'GET',
        ...(body && { body, headers: { 'content-type': 'application/json' } }),
      })
      const text = await answer.text()
      const type = answer.headers.get('content-type') ?? 'text/plain'
      response
        .writeHead(answer.status, { 'content-type': type })
        .end(text.includes('kv_transfer_params') ? stripped(text) : text)
    } catch {
      response.destroy()
    }
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return { server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
}

function stripped(text: string): string {
  const answer = JSON.parse(text) as { kv_transfer_params?: { eldr?: unknown } }
  delete answer.kv_transfer_params?.eldr
  return JSON.stringify(answer)
}
